import t from 'tap'
import { listFds, takeHandedSockets, toSuccessorEnv } from '../../bin/handed-sockets.ts'

const PID = 77

t.test('[bin/production.2] which sockets are meant for this process, and for what', async t => {
  for (const [name, env, expected] of [
    ['nothing', {}, null],
    ['for another process', { LISTEN_PID: '78', LISTEN_FDS: '1' }, null],
    ['of nobody', { LISTEN_FDS: '1' }, null],
    ['none', { LISTEN_PID: '77', LISTEN_FDS: '0' }, null],
    ['one without a name', { LISTEN_PID: '77', LISTEN_FDS: '1' }, { public: [3], control: null }],
    ['an empty name', { LISTEN_PID: '77', LISTEN_FDS: '1', LISTEN_FDNAMES: '' }, { public: [3], control: null }],
    ['any name', { LISTEN_PID: '77', LISTEN_FDS: '1', LISTEN_FDNAMES: 'fngw.socket' }, { public: [3], control: null }],
    [
      'the control plane’s too',
      { LISTEN_PID: '77', LISTEN_FDS: '3', LISTEN_FDNAMES: 'a:control:b' },
      { public: [3, 5], control: 4 },
    ],
    [
      'the control plane’s alone',
      { LISTEN_PID: '77', LISTEN_FDS: '1', LISTEN_FDNAMES: 'control' },
      { public: [], control: 3 },
    ],
  ] as const) {
    const given: Record<string, string | undefined> = { ...env, PATH: '/bin' }
    t.same(takeHandedSockets(given, PID), expected, name)
    t.same(given, { PATH: '/bin' }, `${name}: nothing started from here is told`)
  }
})

t.test('[bin/production.4] variables that contradict each other', async t => {
  for (const [env, message] of [
    [{ LISTEN_FDS: 'x' }, 'LISTEN_FDS must be a count from 0 to 64, got "x"'],
    [{ LISTEN_FDS: '65' }, 'LISTEN_FDS must be a count'],
    [{ LISTEN_FDS: '-1' }, 'LISTEN_FDS must be a count'],
    [{ LISTEN_FDS: '2', LISTEN_FDNAMES: 'a' }, 'LISTEN_FDNAMES has 1 names for 2 sockets'],
    [{ LISTEN_FDS: '2', LISTEN_FDNAMES: 'control:control' }, '2 sockets are named control'],
  ] as const)
    t.throws(() => takeHandedSockets({ LISTEN_PID: '77', ...env }, PID), { message: new RegExp(message), exitCode: 1 })
})

t.test('[bin/production.2] a process that takes the place of this one gets them', async t => {
  const env = { LISTEN_PID: '77', LISTEN_FDS: '2' }
  t.same(listFds(env, PID), [3, 4])
  t.same(takeHandedSockets(toSuccessorEnv(env), 4711), { public: [3, 4], control: null })
})
