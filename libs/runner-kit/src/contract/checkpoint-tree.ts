import { type Opened, run, shell } from './bench';

/** Everything that a tree can hold, some of it at random. Python alone makes attributes and holes. */
export const makeTree = (seed: number) => `
import os, random
random.seed(${seed})
os.makedirs('/srv/tree/empty', exist_ok=True)
os.chdir('/srv/tree')
def put(name, data, mode=0o644):
    with open(name, 'wb') as f: f.write(data)
    os.chmod(name, mode)
for i in range(200):
    d = 'd%d/e%d' % (i % 7, i % 3)
    os.makedirs(d, exist_ok=True)
    put('%s/f%d' % (d, i), random.randbytes(random.choice([0, 1, 300, 5000, 70000])))
put('big', random.randbytes(3_000_001))
put('text', b'the same line again\\n' * 50_000)
put('setuid', b'x', 0o4755)
put('secret', b'y', 0o400)
os.link('d1/e1/f1', 'hard-1'); os.link('d1/e1/f1', 'd2/hard-2')
os.symlink('d1', 'link'); os.symlink('/nowhere/at/all', 'dangling')
os.mkfifo('fifo', 0o640)
put(b'odd \\xff\\n name', b'z')
os.chown('text', 1234, 4321); os.chown('link', 7, 8, follow_symlinks=False)
os.setxattr('text', 'user.note', b'\\x00\\x01 note'); os.setxattr('d3', 'user.dir', b'd')
with open('sparse', 'wb') as f:
    f.truncate(40_000_000); f.seek(20_000_000); f.write(b'middle'); f.seek(39_999_999); f.write(b'e')
os.makedirs('a/' + '/'.join(['deep'] * 40)); put('a/' + '/'.join(['deep'] * 40) + '/leaf', b'leaf')
os.setxattr('setuid', 'security.capability', bytes.fromhex('0100000200040000000000000000000000000000'))
os.setxattr('d6', 'system.posix_acl_access', bytes.fromhex('02000000' + '01000700ffffffff' + '02000500d2040000' + '04000500ffffffff' + '10000500ffffffff' + '20000000ffffffff'))
os.chmod('d4', 0o1777); os.chmod('d5', 0o500)
os.utime('big', ns=(1_000_000_000_123_456_789, 1_000_000_000_123_456_789))
os.remove('/etc/issue')
os.system('rm -r /etc/skel /usr/share/doc/base-files; mkdir /etc/skel'); put('/etc/skel/own', b'o')
put('/etc/shells', b'changed in place\\n')
deep = sorted(os.path.join(t, n) for t, d, f in os.walk('/usr/share') for n in f if t.count('/') > 4)[0]
try:
    with open(deep, 'ab') as f: f.write(b'changed in place')
except PermissionError: # a file of the base that is nobody's may be replaced alone
    data = open(deep, 'rb').read(); os.remove(deep); put(deep, data + b'changed in place')
with open('/srv/tree/deep-name', 'w') as f: f.write(deep)
os.symlink('x', 'old'); os.utime('old', ns=(-5_000_000_001, -5_000_000_001), follow_symlinks=False)
`;

const describeTree = `
import os, hashlib
def show(p):
    s = os.lstat(p)
    kind = oct(s.st_mode); more = ''
    if os.path.islink(p): more = os.readlink(p)
    elif os.path.isfile(p): more = '%d %s %d' % (s.st_size, hashlib.sha256(open(p, 'rb').read()).hexdigest(), s.st_nlink)
    attrs = [] if os.path.islink(p) else sorted((n, os.getxattr(p, n)) for n in os.listxattr(p))
    print(ascii(p), kind, s.st_uid, s.st_gid, s.st_mtime_ns, more, attrs)
for top, dirs, files in os.walk('/srv/tree'):
    dirs.sort()
    show(top)
    for name in sorted(files + [d for d in dirs if os.path.islink(os.path.join(top, d))]): show(os.path.join(top, name))
show('/etc/shells'); show(open('/srv/tree/deep-name').read()); print(os.stat('/srv/tree/sparse').st_blocks < 2000)
print('removed', os.listdir('/etc/skel'), os.path.lexists('/etc/issue'), os.path.lexists('/usr/share/doc/base-files'))
`;

export const python = (script: string) => ({ ...shell(''), argv: ['python3', '-c', script] });

export async function shown({ client }: Opened): Promise<string> {
  const { stdout, stderr, exec } = await run(client, python(describeTree));
  if (exec.outcome.kind !== 'exited' || exec.outcome.code !== 0) throw new Error(stderr.toString());
  return stdout.toString();
}

export const withoutRemovals = (shown: string): string => shown.replace(/^removed .*$/m, '');
