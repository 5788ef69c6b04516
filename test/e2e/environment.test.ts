import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { handlerFile, RUNTIMES } from '../helpers/gateway-bed.ts'
import { commandOf, environOf, listProcesses } from '../helpers/processes.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'
import { makeCertificates, tlsUpstream } from '../helpers/upstream.ts'

/** Answers with the environment of the event, and with that of the whole process where the language shows it. */
const HANDLERS: Readonly<Record<string, string>> = {
  node: 'exports.handler = event => ({ event: event.env, process: process.env })\n',
  python: 'import os\ndef handler(event):\n    return {"event": event["env"], "process": dict(os.environ)}\n',
  php: '<?php\nfunction handler($event) { return ["event" => $event["env"], "process" => getenv()]; }\n',
  lua: 'function handler(event)\n  return { event = event.env, process = { PLANTED = os.getenv and os.getenv("PLANTED_HOST_SECRET") } }\nend\n',
}

const HOST_SECRET = 'hunter2-of-the-host'
const GATEWAY_SECRET = 'hunter2-of-the-gateway'

interface Shown {
  event: Record<string, string>
  process: Record<string, string>
}

/**
 * Daemons clean the environment of their workers themselves, so what a function sees does not tell whether the gateway has
 * handed its own to the daemon: every process between the two is looked at.
 */
function checkProcesses(t: import('tap').Test): void {
  const processes = listProcesses().map(pid => ({ command: commandOf(pid), environ: environOf(pid) }))
  const readable = processes.filter(({ environ }) => environ.includes('PATH='))
  // Lua has no process; a php worker writes its name over its environment.
  t.ok(readable.length >= RUNTIMES.length - 1, 'every daemon was read')
  for (const { command, environ } of processes) {
    const name = command.replaceAll('\0', ' ').trim()
    for (const secret of [HOST_SECRET, GATEWAY_SECRET]) {
      t.notOk(environ.includes(secret), `${secret} is not in the environment of ${name}`)
      t.notOk(command.includes(secret), `${secret} is not in the command line of ${name}`)
    }
  }
}

t.test(
  '[config/function-env.9, config/function-env.10, config/function-env.11, config/function-env.13] every language gets its files over the project, the process over both, and no secret of the host',
  async t => {
    const entries: Record<string, TreeEntry> = {
      'project/.git/': '',
      'project/fngw.json': { json: { 'functions-dir': 'functions' } },
      'project/.env': `FN_ADMIN_TOKEN=${GATEWAY_SECRET}\nFN_ENV=production\nSHARED=project\nLOCAL=project\nOWN=project\n`,
      'project/.env.local': 'LOCAL=local\n',
    }
    for (const runtime of RUNTIMES) {
      entries[`project/functions/${runtime}-fn/${handlerFile(runtime)}`] = HANDLERS[runtime]!
      entries[`project/functions/${runtime}-fn/.env`] = 'OWN=dotenv\nTOP=dotenv\nHOSTED=dotenv\n'
      entries[`project/functions/${runtime}-fn/fn.env.json`] = {
        json: { TOP: 'json', FN_ADMIN_TOKEN: 'of the function', GONE: null },
      }
    }
    const tree = makeTree(entries)
    t.teardown(tree.cleanup)
    process.env.PLANTED_HOST_SECRET = HOST_SECRET
    t.teardown(() => delete process.env.PLANTED_HOST_SECRET)
    const gateway = await createGateway({
      env: { ...process.env, HOSTED: 'container', FN_ADMIN_TOKEN: GATEWAY_SECRET, GONE: 'container' },
      project: { explicit: null },
      cwd: tree.path('project'),
    })
    t.teardown(() => gateway.close({ timeoutMs: 1000 }))
    t.equal(gateway.settings.adminToken, GATEWAY_SECRET)
    const expected = {
      SHARED: 'project',
      LOCAL: 'local',
      OWN: 'dotenv',
      TOP: 'json',
      HOSTED: 'container',
      FN_ADMIN_TOKEN: 'of the function',
    }
    const call = async (runtime: string): Promise<Shown> => {
      const { status, text } = await gateway.inject(`/${runtime}-fn`)
      const payload = text()
      t.equal(status, 200, payload)
      t.notMatch(payload, HOST_SECRET, `${runtime}: a secret of the host`)
      t.notMatch(payload, GATEWAY_SECRET, `${runtime}: a secret of the gateway`)
      return JSON.parse(payload) as Shown
    }
    for (const runtime of RUNTIMES) t.same((await call(runtime)).event, expected, runtime)
    if (process.platform === 'linux') checkProcesses(t)

    tree.write({ 'project/.env.local': 'LOCAL=changed\n' })
    await gateway.reload()
    for (const runtime of RUNTIMES) t.equal((await call(runtime)).event.LOCAL, 'changed', `${runtime} after a reload`)
  },
)

t.test('[config/function-env.8] functions in Node trust the authorities of NODE_EXTRA_CA_CERTS', async t => {
  const { ca, key, cert } = makeCertificates()
  const upstream = await tlsUpstream(key, cert, (_request, response) => response.end('trusted'))
  t.teardown(() => upstream.close())
  const tree = makeTree({
    'ca.pem': ca,
    'functions/ask/handler.js': `exports.handler = async () => (await fetch('${upstream.url}')).text()\n`,
  })
  t.teardown(tree.cleanup)
  const gateway = await createGateway({
    functionsRoot: tree.path('functions'),
    runtimes: ['node'],
    logLevel: 'silent',
    env: { ...process.env, NODE_EXTRA_CA_CERTS: tree.path('ca.pem') },
  })
  t.teardown(() => gateway.close())
  t.equal((await gateway.inject('/ask')).text(), '"trusted"')
})
