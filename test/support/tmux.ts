import { execFileSync, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { releaseLater, until } from '@vmux/testing';

export const hasTmux = spawnSync('tmux', ['-V']).status === 0;

export interface TmuxOptions {
  readonly cols?: number;
  readonly rows?: number;
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

/** A real terminal with a shell in it, of which the screen can be read. */
export class Tmux {
  private readonly socket = `vmux-test-${randomUUID()}`;

  constructor({ cols = 80, rows = 24, cwd, env }: TmuxOptions) {
    const size = ['-x', String(cols), '-y', String(rows)];
    // Without a history: it is written when the shell ends, into a directory that is being removed then.
    const shell = 'exec env -u HISTFILE PS1="here> " bash --norc --noprofile +o history';
    // Without a configuration of whoever runs the tests; UTF-8 whatever their locale is.
    const args = ['-u', '-L', this.socket, '-f', '/dev/null', 'new-session', '-d', ...size, shell];
    execFileSync('tmux', args, { cwd, env: { ...env, LANG: 'C.UTF-8', TERM: 'xterm-256color' } });
    releaseLater(() => void spawnSync('tmux', ['-L', this.socket, 'kill-server']));
  }

  /** A line and Enter. */
  line(text: string): void {
    this.run('send-keys', '-l', text);
    this.run('send-keys', 'Enter');
  }

  /** Keys by their names, such as C-c. */
  keys(...names: readonly string[]): void {
    this.run('send-keys', ...names);
  }

  /** Every byte that the terminal is sent from now on, into a file. */
  record(file: string): void {
    this.run('pipe-pane', '-O', `cat > '${file}'`);
  }

  resize(cols: number, rows: number): void {
    this.run('resize-window', '-x', String(cols), '-y', String(rows));
  }

  /** The lines of the screen, without those that are empty at its end. */
  screen(): string {
    return this.run('capture-pane', '-p').trimEnd();
  }

  /** With colours and other attributes. */
  painted(): string {
    return this.run('capture-pane', '-p', '-e').trimEnd();
  }

  cursor(): string {
    return this.run('display-message', '-p', '#{cursor_x},#{cursor_y}').trim();
  }

  async until(
    shown: string | RegExp | ((screen: string) => boolean),
    timeoutMs = 30_000,
  ): Promise<string> {
    const matches = (screen: string) => {
      if (typeof shown === 'function') return shown(screen);
      return typeof shown === 'string' ? screen.includes(shown) : shown.test(screen);
    };
    try {
      return await until(() => matches(this.screen()) && this.screen(), { timeoutMs });
    } catch (fault) {
      throw new Error(`the screen does not show ${shown} but:\n${this.screen()}`, { cause: fault });
    }
  }

  private run(...args: readonly string[]): string {
    return execFileSync('tmux', ['-u', '-L', this.socket, ...args]).toString();
  }
}
