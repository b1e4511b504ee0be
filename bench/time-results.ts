import { type Aim, atMost, beside, type Measured, writePage } from './page';

const SIZES = [
  ['10m', '10 MB'],
  ['300m', '300 MB'],
  ['1g', '1 GB'],
] as const;

const AIMS: readonly Aim[] = [
  ...SIZES.map(([key, size]) => atMost(`checkpoint_${key}_ms`, `checkpoint of ${size}, ms`, 60)),
  ...SIZES.map(([key, size]) => atMost(`fork_${key}_ms`, `fork of ${size} → first exec, ms`, 100)),
  atMost('resume_ms', 'resume, through the API, one each in turn, ms', 5),
  atMost('resume_in_a_row_ms', 'the same, ten in a row each, ms', 5),
  beside('resume_driver_ms', 'the same, its driver alone, one each in turn, ms'),
  atMost('second_checkpoint_ratio', 'second portable checkpoint of 1 GB, 1 % changed ÷ first', 0.1),
  beside('checkpoint_vs_docker_commit_1g', 'checkpoint of 1 GB ÷ `docker commit`'),
  beside('checkpoint_vs_cp_1g', 'checkpoint of 1 GB ÷ `cp -a`'),
  beside('checkpoint_vs_tar_zstd_1g', 'checkpoint of 1 GB ÷ `tar` with zstd -1'),
  beside('fork_vs_docker_run_1g', 'fork of 1 GB → first exec ÷ `docker run` of a commit'),
  beside('suspend_vs_docker_pause', 'suspend ÷ `docker pause`'),
  beside('resume_vs_docker_unpause', 'resume ÷ `docker unpause`'),
];

/** TIME.md, in the form of RESULTS.md. */
export function writeTimeResults(measured: Measured): void {
  writePage({
    ...measured,
    ...{ file: 'TIME.md', title: 'Checkpoints, forks and rest', command: 'npm run bench -- time' },
    ...{ aims: AIMS, head: 'medians; ratios of medians within a round' },
  });
}
