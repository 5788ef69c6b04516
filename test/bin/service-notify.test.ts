import { spawn } from 'node:child_process'
import { chmodSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { takeServiceNotify } from '../../bin/service-notify.ts'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { makeTree } from '../helpers/tree.ts'
import { waitUntil } from '../helpers/gateway-bed.ts'

const PID = 77

/** A stand-in for the program, which notes what it is told. */
function makeProgram(t: Test, more = '') {
  const tree = makeTree({ 'systemd-notify': `#!/bin/sh\necho "$NOTIFY_SOCKET $*" >> "$(dirname "$0")/told"\n${more}` })
  t.teardown(tree.cleanup)
  chmodSync(tree.path('systemd-notify'), 0o755)
  tree.write({ told: '' })
  const env = { PATH: `${tree.root}:${process.env.PATH}`, NOTIFY_SOCKET: '/run/n' }
  return { env, told: () => readFileSync(tree.path('told'), 'utf8').trim().split('\n') }
}

t.test('[bin/production.6] ready, alive, stopping, in this order', async t => {
  const { env, told } = makeProgram(t)
  const warned: string[] = []
  const given: Record<string, string | undefined> = { ...env, WATCHDOG_USEC: '40000', WATCHDOG_PID: '77' }
  const notify = takeServiceNotify(given, PID)
  t.same(Object.keys(given), ['PATH'], 'what is started from here does not speak for the service')
  notify.ready('serving at http://x', text => warned.push(text))
  await waitUntil(() => told().length >= 3, 'signs of life')
  notify.stopping()
  await notify.close()
  const all = told()
  t.equal(all[0], '/run/n READY=1 STATUS=serving at http://x')
  t.match(all.at(-1), /^\/run\/n STOPPING=1 STATUS=/)
  t.same([...new Set(all.slice(1, -1))], ['/run/n WATCHDOG=1'])
  t.same(warned, [])
})

t.test('[bin/production.6] nobody to tell, and what cannot be told', async t => {
  const warned: string[] = []
  const warn = (text: string) => warned.push(text)
  const nobody = takeServiceNotify({ PATH: process.env.PATH }, PID)
  nobody.ready('x', warn)
  nobody.stopping()
  await nobody.close()
  t.same(warned, [])

  takeServiceNotify({ PATH: t.testdir({}), NOTIFY_SOCKET: '/run/n' }, PID).ready('x', warn)
  t.match(warned, [/systemd-notify is not installed.*Type=exec/])

  const failing = makeProgram(t, 'exit 3\n')
  warned.length = 0
  const notify = takeServiceNotify({ ...failing.env, WATCHDOG_USEC: '1000000', WATCHDOG_PID: '1' }, PID)
  notify.ready('x', warn)
  notify.stopping()
  await notify.close()
  t.match(warned, [/^systemd-notify READY=1 STATUS=x: it ended with 3$/], 'said once')
  t.equal(warned.length, 1)
  t.equal(failing.told().filter(line => line.includes('WATCHDOG')).length, 0, 'the watchdog is another process’s')
})

const MANAGER = `import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(sys.argv[1]); os.write(1, b"bound\\n")
while True: os.write(1, s.recv(4096).replace(b"\\n", b" ") + b"\\n")
`
const HAS_NONE = findOnPath('systemd-notify', process.env.PATH ?? '') === null && 'systemd-notify is not installed'

t.test('[bin/production.6] the real program and a real socket', { skip: HAS_NONE }, async t => {
  const socket = `${makeTreeFor(t)}/notify`
  const manager = spawn('python3', ['-c', MANAGER, socket], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => void manager.kill('SIGKILL'))
  const lines = createInterface({ input: manager.stdout })[Symbol.asyncIterator]()
  t.equal((await lines.next()).value, 'bound')
  const notify = takeServiceNotify({ PATH: process.env.PATH, NOTIFY_SOCKET: socket }, PID)
  notify.ready('here', text => t.fail(text))
  // Newer ones ask whether everything has arrived, too.
  const next = async (): Promise<string> => {
    const { value } = await lines.next()
    return value === 'BARRIER=1' ? next() : value
  }
  t.match(await next(), /READY=1.*STATUS=here/)
  notify.stopping()
  t.match(await next(), /STOPPING=1/)
  await notify.close()
})

function makeTreeFor(t: Test): string {
  const { root, cleanup } = makeTree()
  t.teardown(cleanup)
  return root
}
