import type { CommandHelp } from './help-entry';

/** Commands that reach into a session: its terminals, files and ports. */
export const reachingHelp: Readonly<Record<string, CommandHelp>> = {
  attach: {
    usage: 'vmux attach [options] SESSION',
    summary: "the session's shell in this terminal; leave with Ctrl-P Ctrl-Q",
    details: `
      --exec ID           another terminal of the session: one made with run -t or exec -t
      --watch             look on without typing; Ctrl-C leaves

  The shell is made when there is none, and goes on when you leave. Several may attach to it, from any machine:
  all see the same screen, which is painted again whenever somebody attaches. It has the size of the terminal
  that attached, was resized or typed last. A connection that is cut, or a server that is started again, is
  not noticed: nothing that was shown or typed is lost or repeated.

  vmux attach @last`,
  },
  cp: {
    usage: 'vmux cp [options] FILE SESSION:PATH   or   vmux cp [options] SESSION:PATH FILE',
    summary: 'copy a file or a directory into or out of a session',
    details: `
  -u, --user USER         as which user of the sandbox
      --max-size SIZE     how much may come out of the session at most, 10G without it
      --json              what was copied, as one line of JSON

  A PATH that is not absolute starts at the session's working directory. What is copied goes into a
  directory that is there, or gets the name that is given. What comes out of a session is not trusted:
  nothing is written through a link, no link leads out of the copy, setuid bits are dropped, and devices
  and hard links are refused.

  vmux cp data.csv @last:
  vmux cp @last:/workspace/out ./out`,
  },
  ports: {
    usage: 'vmux ports [options] SESSION',
    summary: 'what listens in a session, and who may look',
    details: `
      --publish PORT      open it to everyone who has its URL; repeatable
      --wake              with --publish: a visit wakes the session
      --unpublish PORT    private again; repeatable
      --revoke PORT       end every token of the port; repeatable
      --json              a JSON array

  A port is private until it is published: its URL needs a token, which vmux open and vmux run -p give.`,
  },
  open: {
    usage: 'vmux open [options] SESSION [PORT]',
    summary: 'print the URL of a port, with a token, and open it in the browser',
    details: `
      --print             do not open it
      --ttl TIME          how long the token works, such as 1h; 168h without it
      --json              one line of JSON {session, port, token, url, tokenUrl, expiresAt}

  PORT may be left out when only one listens.`,
  },
  forward: {
    usage: 'vmux forward SESSION PORT[:LOCAL]…',
    summary: 'ports of a session on 127.0.0.1, until Ctrl-C',
    details: `
      --json              JSON lines {session, port, localPort, localUrl}

  LOCAL is the port on this machine, 0 for any; the same as in the session without it.

  vmux forward @last 8000
  vmux forward @last 5432:15432`,
  },
  stats: {
    usage: 'vmux stats [-f] SESSION',
    summary: 'what a sandbox uses: CPU, memory, disk; looking does not wake it',
    details: `
  -f, --follow            again and again, until Ctrl-C
      --every TIME        how often, 1s without it
      --json              JSON lines`,
  },
  replay: {
    usage: 'vmux replay [options] SESSION',
    summary: 'terminal output at the pace at which it was written',
    details: `
      --exec ID           of this exec; the newest one with a terminal, else everything
      --speed N           such as 4 for four times as fast
      --max-pause TIME    shorten what is longer
      --cast FILE         write an asciicast file (version 2) instead; - for stdout
      --raw               to a terminal too: every byte, not only text and colours`,
  },
};
