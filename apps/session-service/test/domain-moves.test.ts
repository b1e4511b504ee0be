import {
  checkpoint,
  checkpointNo,
  command,
  hex,
  ON_NS,
  placementOn,
  systemCommand,
} from './domain-makers';
import {
  failed,
  fork,
  lost,
  move,
  notTaken,
  place,
  ready,
  resume,
  resumed,
  take,
  taken,
} from './domain-messages';
import { given, issue, issued, past, running } from './domain-spec';

describe('Moving', () => {
  const onDocker = placementOn('docker');
  const frozen = [...running(), issued(1), move(), taken(9)];
  const restoring = [...frozen, place(onDocker)];

  it('freezes the source with a checkpoint and queues new work', () => {
    given(...running())
      .when(move())
      .thenTypes('MoveRequested', 'CheckpointRequested');
    given(...running(), move(), issue(2)).thenOwes('TakeCheckpoint ns-1');
    given(...frozen, issue(2)).thenOwes();
  });

  it('restores on the target as the pending epoch', () => {
    given(...frozen)
      .when(place(ON_NS))
      .thenNothing();
    given(...frozen)
      .when(place(onDocker))
      .thenTypes('SandboxRequested');
    given(...restoring).thenOwes('CreateSandbox docker-1');
  });

  it('ends with the work that waited on the target, and the source destroyed', () => {
    const arrived = ready(2, hex('9'), 'docker-1');
    given(...restoring, issue(2))
      .when(arrived)
      .thenTypes('ExecOutcomeUnknown', 'SandboxStarted', 'Moved', 'ExecDispatched');
    given(...restoring, arrived).thenOwes('DestroySandbox ns-1');
    expect(past(...restoring, arrived).session).toMatchObject({ provider: 'docker' });
  });

  it('that fails on the target thaws the source, which goes on', () => {
    const back = { ...failed(2, true), runnerId: 'docker-1' };
    const after = given(...restoring, issue(2))
      .when(back)
      .thenTypes('SandboxFailed', 'MoveFailed');
    const request = after.session.revision;
    given(...restoring, issue(2), back).thenOwes('ResumeSandbox ns-1');
    given(...restoring, issue(2), back)
      .when(resumed(request))
      .thenTypes('SandboxResumed', 'ExecDispatched');
  });

  it('that waits for its sandbox is given up by a resume, and the source goes on', () => {
    const after = given(...restoring)
      .when(resume)
      .thenTypes('SandboxFailed', 'MoveFailed');
    const request = after.session.revision;
    given(...restoring, resume).thenOwes('DestroySandbox docker-1', 'ResumeSandbox ns-1');
    given(...restoring, resume)
      .when(resumed(request))
      .thenTypes('SandboxResumed');
    given(...frozen)
      .when(resume)
      .thenTypes('MoveFailed');
    given(...running(), move())
      .when(resume)
      .thenRefused('operation_underway');
  });

  it('that fails on the source is over', () => {
    given(...running(), move(), issue(2))
      .when(notTaken(9))
      .thenTypes('CheckpointFailed', 'MoveFailed', 'ExecDispatched');
  });

  it('survives the loss of a source that was already stored', () => {
    given(...restoring)
      .when(lost)
      .thenTypes('SandboxLost', 'ExecOutcomeUnknown');
    given(...restoring, lost)
      .when(ready(2, hex('9'), 'docker-1'))
      .thenTypes('SandboxStarted', 'Moved');
    given(...running(), move())
      .when(lost)
      .thenTypes('SandboxLost', 'CheckpointFailed', 'MoveFailed');
  });

  it('to where it is has no point', () => {
    given(...running())
      .when(move('ns'))
      .thenRefused('nothing_to_do');
  });
});

describe('Forking', () => {
  const record = (index: number) =>
    systemCommand('RecordFork', { forkId: 'f000000000001', index, child: `web-000${index}` });

  it('takes a checkpoint of a running session first, and leaves it running', () => {
    given(...running())
      .when(fork())
      .thenTypes('ForkRequested', 'CheckpointRequested');
    given(...running(), fork(), issue(1)).thenOwes('TakeCheckpoint ns-1', 'StartExec ns-1');
  });

  it('of a checkpoint needs no sandbox', () => {
    const saved = [...running(), take(1), taken(1), lost];
    given(...saved)
      .when(fork())
      .thenTypes('ForkRequested');
    given(...saved)
      .when(fork(checkpointNo(1)))
      .thenTypes('ForkRequested');
    given(...running(), lost)
      .when(fork())
      .thenRefused('checkpoint_not_found');
  });

  it('records each child once', () => {
    const forking = [...running(), fork(), taken(8)];
    given(...forking)
      .when(record(1))
      .thenTypes('Forked');
    given(...forking, record(1))
      .when(record(1))
      .thenNothing();
    given(...forking, record(1), record(0))
      .when(record(0))
      .thenNothing();
  });

  it('starts the child from the checkpoint', () => {
    const lineage = { parent: 'api-0000', checkpoint: checkpoint(1, 1), forkId: 'f000000000001' };
    const child = command(
      'CreateSession',
      { name: 'web', attempt: 0, provider: 'ns', spec: specOf(), lineage },
      { placement: ON_NS },
    );
    const after = given().when(child).thenTypes('SessionCreated', 'SandboxRequested');
    expect(after.history[1]?.event.data).toMatchObject({ restore: checkpoint(1, 1) });
    given(child)
      .when(ready(1, hex('0')))
      .thenTypes('SandboxFailed', 'SessionFailed');
    given(child)
      .when(ready(1, hex('1')))
      .thenTypes('SandboxStarted');
  });

  const specOf = () => {
    const [first] = running();
    if (first?.type !== 'SessionCreated') throw new Error('a history begins with SessionCreated');
    return first.data.spec;
  };
});
