/** What functions can do to the gateway and to each other, at each level of FN_ISOLATION. */

import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { createGateway, type Gateway } from '../../lib/index.ts'
import { runCli, startCli } from '../helpers/cli.ts'
import { childrenOf, commandOf, descendantsOf, isRunning, statusOf } from '../helpers/processes.ts'
import { injectBuilt } from '../helpers/compiled.ts'
import {
  HANDLERS,
  LANGUAGES,
  type Language,
  makeRoot,
  PYTHON,
  run,
  SECRET,
  serve,
  startedGo,
} from './shell-handlers.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(240_000)

const TOKEN = 'planted-admin-token'

/** Runs named commands in one call. @returns what each wrote, and why it failed */
async function runAll(
  gateway: Gateway,
  language: Language,
  commands: Record<string, string>,
): Promise<Record<string, string>> {
  const script = Object.entries(commands).map(([name, command]) => `echo '@@ ${name}'; ( ${command} ) 2>&1`)
  const text = await run(gateway, language, script.join('\n'))
  const found = Object.fromEntries(
    text.split(/^@@ /m).map(part => [part.split('\n', 1)[0]!, part.slice(part.indexOf('\n') + 1).trim()]),
  )
  return Object.fromEntries(Object.keys(commands).map(name => [name, found[name] ?? `not run: ${text.slice(0, 200)}`]))
}

/** The process of a function's worker: the parent of the shell that it starts. */
const pidOf = async (gateway: Gateway, language: Language) => Number(await run(gateway, language, 'echo $PPID'))

t.test(
  '[runtime/isolation.1, runtime/isolation.2] process: nothing a function is given leads to the gateway',
  async t => {
    const folder = t.testdir({ token: `${TOKEN}\n` })
    const languages = LANGUAGES.filter(name => name !== 'go' && name !== 'rust')
    const { gateway } = await serve(t, languages, { adminTokenFile: join(folder, 'token') })
    t.equal(gateway.settings.adminToken, TOKEN)
    for (const language of languages) {
      t.notMatch(await run(gateway, language, 'env'), new RegExp(TOKEN), `${language}: environment`)
      t.equal(await run(gateway, language, 'echo $OWN'), `${SECRET}-${language}`)
    }
    t.notMatch(readFileSync('/proc/self/environ', 'latin1'), TOKEN, 'nor has the gateway it in its own')
  },
)

/** One gateway for the tests of a level: compiled functions take seconds. */
let isolated: Promise<{ gateway: Gateway; root: string; go: string | null }> | null = null
const serveIsolated = () => (isolated ??= startIsolated())
async function startIsolated() {
  const go = LANGUAGES.includes('go') ? await startedGo(t) : null
  const binaries = { python: PYTHON, ...(go !== null && { go }) }
  return { ...(await serve(t, LANGUAGES, { isolation: 'user', isolationFiles: 'close', binaries })), go }
}

const NO_ROOT =
  process.platform !== 'linux' || process.geteuid?.() !== 0 ? 'changing users needs Linux and root' : false

const DENIED = /ermission denied|not permitted|annot create/

t.test(
  '[runtime/isolation.4, runtime/isolation.5, runtime/isolation.14] user: each function is a user of its own, for good',
  { skip: NO_ROOT },
  async t => {
    const { gateway, root } = await serveIsolated()
    const uids = new Set<string>()
    for (const language of LANGUAGES) {
      const seen = await runAll(gateway, language, {
        uid: 'id -u',
        groups: 'echo $(id -g) $(id -G)',
        worker: 'cat /proc/$PPID/status',
        child: 'cat /proc/self/status',
        umask: 'umask',
        own: 'echo $OWN',
      })
      const { uid } = seen as { uid: string }
      t.match(uid, /^2\d{4}$/, language)
      uids.add(uid)
      t.equal(seen.groups, `${uid} ${uid}`, `${language}: no other group`)
      for (const status of [seen.worker!, seen.child!]) {
        t.match(status, /CapEff:\s*0+$/m)
        for (const name of ['CapPrm', 'CapEff', 'CapInh', 'CapAmb'])
          t.notMatch(status, new RegExp(`${name}:\\s*0*[1-9a-f]`), `${language}: ${name}`)
        t.match(status, /NoNewPrivs:\s*1/, `${language}: no new privileges`)
        for (const name of ['Uid', 'Gid'])
          t.match(status, new RegExp(`^${name}:(?:\\s${uid}){4}$`, 'm'), `${language}: real, effective, saved ${name}`)
      }
      t.equal(seen.umask, '0077', language)
      t.equal(seen.own, `${SECRET}-${language}`)
    }
    t.equal(uids.size, LANGUAGES.length, 'none is shared')
    t.equal(process.geteuid?.(), 0, 'the program that embeds a gateway stays who it is')
    const state = JSON.parse(readFileSync(join(root, '.svc/isolation.json'), 'utf8'))
    t.same(Object.values(state.users).sort(), [...uids].map(Number).sort())
    t.equal(statSync(join(root, '.svc/isolation.json')).mode & 0o777, 0o600)
  },
)

t.test('[runtime/isolation.6] user: temporary files are private', { skip: NO_ROOT }, async t => {
  const { gateway } = await serveIsolated()
  const folders = new Map<Language, string>()
  for (const language of LANGUAGES) {
    const seen = await runAll(gateway, language, {
      folder: 'echo $TMPDIR',
      home: 'echo $HOME',
      write: 'echo mine > $TMPDIR/file && cat $TMPDIR/file && stat -c %a $TMPDIR $TMPDIR/file',
    })
    folders.set(language, seen.folder!)
    t.equal(seen.home, seen.folder)
    t.equal(seen.write, 'mine\n700\n600', language)
  }
  for (const language of LANGUAGES) {
    const attempts: Record<string, string> = {}
    for (const [other, folder] of folders) {
      if (other === language) continue
      attempts[`reads ${other}`] = `cat ${folder}/file`
      attempts[`lists ${other}`] = `ls ${folder}`
      attempts[`writes ${other}`] = `echo x > ${folder}/new`
    }
    for (const [name, outcome] of Object.entries(await runAll(gateway, language, attempts)))
      t.match(outcome, DENIED, `${language} ${name}`)
  }
})

t.test(
  '[runtime/isolation.7, runtime/isolation.8] user: the gateway, its daemons and other functions cannot be read, ended or posed as',
  { skip: NO_ROOT },
  async t => {
    const { gateway, root } = await serveIsolated()
    const pids = new Map<Language, number>()
    await Promise.all(LANGUAGES.map(async language => pids.set(language, await pidOf(gateway, language))))
    const daemons = childrenOf(process.pid).filter(pid => /daemon\.(?:mjs|py|php)/.test(commandOf(pid)))
    t.ok(daemons.length >= 1)
    for (const pid of daemons.filter(pid => commandOf(pid).includes('daemon.php')))
      t.match(commandOf(pid), 'opcache.enable=0', 'no memory for code that workers share')
    for (const language of LANGUAGES) {
      const others = LANGUAGES.filter(other => other !== language)
      const targets = [process.pid, ...daemons, ...others.map(other => pids.get(other)!)]
      const attempts: Record<string, string> = {}
      for (const pid of targets) {
        for (const file of ['environ', 'mem', 'maps', 'fd/0', 'cwd/.'])
          attempts[`reads ${file} of ${pid}`] = `cat /proc/${pid}/${file}`
        // Signal 0: nothing is sent, only the right to send is checked.
        attempts[`signals ${pid}`] = `kill -0 ${pid}`
      }
      const sockets = '$TMPDIR/../../..'
      attempts['lists sockets'] = `ls ${sockets}`
      attempts['lists users'] = `ls ${sockets}/u`
      attempts['adds a socket'] = `touch ${sockets}/x`
      attempts['renames a socket'] = `mv ${sockets}/node-1.sock ${sockets}/y`
      attempts['deletes a socket'] = `rm ${sockets}/node-1.sock`
      for (const other of others) {
        attempts[`reads secrets of ${other}`] = `cat ${root}/${other}/fn.env.json`
        attempts[`reads code of ${other}`] = `cat ${root}/${other}/${HANDLERS[other][0]}`
        attempts[`lists the files of ${other}`] = `ls ${root}/${other}`
        attempts[`looks for programs of ${other}`] = `ls ${root}/${other}/.${other}-build/*`
        attempts[`writes code of ${other}`] = `echo x >> ${root}/${other}/${HANDLERS[other][0]}`
      }
      attempts['writes its own code'] = `echo x >> ${root}/${language}/${HANDLERS[language][0]}`
      attempts['reads the state'] = `cat ${root}/.svc/isolation.json`
      attempts['writes state'] = `touch ${root}/.svc/x`
      for (const [name, outcome] of Object.entries(await runAll(gateway, language, attempts)))
        t.match(outcome, DENIED, `${language} ${name}`)
    }
    for (const [language, pid] of pids) t.equal(await pidOf(gateway, language), pid, `${language} is unharmed`)
    const folder = await run(gateway, 'node', 'echo $TMPDIR')
    t.ok(existsSync(folder))
    await gateway.close()
    t.notOk(existsSync(folder), 'temporary files are gone with the gateway')
  },
)

/** Ways to start `fngw run` that end with a gateway that is not root. */
const TWO_CAPABILITIES = '-all,+setuid,+setgid'
const AS_USER = ['--reuid', '20000', '--regid', '20000', '--clear-groups']
const STARTS = {
  root: [],
  'root with two capabilities': ['setpriv', `--bounding-set=${TWO_CAPABILITIES}`, '--inh-caps=-all', '--'],
  'a user with two capabilities': [
    'setpriv',
    ...AS_USER,
    `--inh-caps=${TWO_CAPABILITIES}`,
    `--ambient-caps=${TWO_CAPABILITIES}`,
    `--bounding-set=${TWO_CAPABILITIES}`,
    '--',
  ],
} as const

/** Languages whose functions need no build: they have one more, which may run for half a second. */
const QUICK = LANGUAGES.filter(language => language === 'node' || language === 'python' || language === 'php')

/** The tree of the isolated gateway, which is closed: what it built is there already. */
async function prepareTree(): Promise<{ root: string; go: string | null }> {
  const { gateway, root, go } = await serveIsolated()
  await gateway.close()
  for (const language of QUICK) {
    const [file, source] = HANDLERS[language]
    mkdirSync(join(root, `${language}-stuck`), { recursive: true })
    writeFileSync(join(root, `${language}-stuck`, file), source)
    const config = '{"timeout_ms": 500, "invoke": {"methods": ["POST"]}}'
    writeFileSync(join(root, `${language}-stuck`, 'fn.config.json'), config)
  }
  return { root, go }
}

const DAEMON = /runtimes\/\w+\/daemon\.(?:mjs|py|php)/
/** Workers of python and php have the command line of their daemon. */
const daemonsOf = (gateway: number) => childrenOf(gateway).filter(child => DAEMON.test(commandOf(child)))
/** Writes its own process id and that of a process it starts, and never ends. */
const HANG = 'echo $$ > $TMPDIR/pids; sleep 1000 & echo $! >> $TMPDIR/pids; wait'

for (const [name, prefix] of Object.entries(STARTS)) {
  t.test(
    `[runtime/isolation.3, runtime/isolation.13] fngw run by ${name}: a gateway that is not root`,
    {
      skip: NO_ROOT,
    },
    async t => {
      const { root, go } = await prepareTree()
      const runtimes = [...new Set(LANGUAGES.map(language => (language === 'ts' ? 'node' : language)))].join(',')
      const env = {
        FN_ISOLATION: 'user',
        FN_ISOLATION_FILES: 'close',
        FN_PYTHON_BIN: PYTHON,
        ...(go !== null && { FN_GO_BIN: go }),
      }
      const args = ['run', root, '--native', '--port', '0', '--runtimes', runtimes]
      const fngw = await startCli(args, { cwd: root, env, prefix })
      t.teardown(() => void fngw.child.kill('SIGKILL'))
      const ask = async (fn: string, command: string): Promise<string> => {
        const answer = await fetch(`${fngw.url}/${fn}`, { method: 'POST', body: command })
        const text = (await answer.text()).trim()
        return answer.status === 200 ? text : `status ${answer.status}: ${text}`
      }
      const workers = new Map<Language, number>()
      await Promise.all(
        LANGUAGES.map(async language => workers.set(language, Number(await ask(language, 'echo $PPID')))),
      )
      const started = fngw.child.pid!
      const all = [started, ...descendantsOf(started)]
      const gateway = name === 'a user with two capabilities' ? started : childrenOf(started)[0]!
      const daemons = daemonsOf(gateway)
      t.equal(daemons.length, runtimes.split(',').length)
      for (const pid of all) t.notMatch(statusOf(pid), /^[UG]id:.*\s0\b/m, `not root: ${commandOf(pid).slice(0, 80)}`)
      for (const pid of [gateway, ...daemons]) t.match(statusOf(pid), /^Uid:(?:\s20000){4}$/m)
      const attack = async (language: Language): Promise<void> => {
        const status = statusOf(workers.get(language)!)
        for (const set of ['CapPrm', 'CapEff', 'CapAmb'])
          t.match(status, new RegExp(`^${set}:\\s0+$`, 'm'), `${language}: ${set}`)
        t.match(status, /^NoNewPrivs:\s1$/m)
        t.match(status, /^Uid:\s(2\d{4})\s\1\s\1\s\1$/m)
        t.notMatch(status, /^Uid:\s20000/m)
        const attempts: string[] = ['ls $TMPDIR/../../..', 'setpriv --reuid 0 true', `cat ${root}/.svc/isolation.json`]
        for (const pid of [gateway, ...daemons]) attempts.push(`kill -0 ${pid}`, `cat /proc/${pid}/environ`)
        for (const other of LANGUAGES.filter(other => other !== language)) {
          attempts.push(`cat ${root}/${other}/${HANDLERS[other][0]}`, `kill -0 ${workers.get(other)}`)
          attempts.push(`cat ${root}/${other}/fn.env.json`)
        }
        const script = attempts.map(command => `echo "$(${command} 2>&1)" | tr '\\n' ' '; echo`).join('\n')
        const outcomes = (await ask(language, script)).split('\n')
        for (const [at, command] of attempts.entries()) t.match(outcomes[at], DENIED, `${language}: ${command}`)
        const closed = 'mkdir -p $TMPDIR/a $TMPDIR/../b/c && echo x > $TMPDIR/a/d && chmod 0 $TMPDIR/a $TMPDIR/../b/c'
        const files = `${closed} && stat -c %a $TMPDIR`
        t.equal(
          await ask(language, files),
          '770',
          `${language}: a folder of its group, which is its own and the gateway's`,
        )
        t.equal(await ask(language, 'echo $OWN'), `${SECRET}-${language}`)
      }
      const endInTime = async (language: Language): Promise<void> => {
        const pids = await hang(ask, `${language}-stuck`)
        t.match(await pids.answer, /^status 504/, language)
        await until(() => !pids.list().some(isRunning), 30_000)
        t.pass(`${language}: what a worker started is killed with it`)
      }
      const endWithDaemon = async (language: Language): Promise<void> => {
        const pids = await hang(ask, language)
        const daemon = daemonsOf(gateway).find(pid => commandOf(pid).includes(`/${language}-1.sock`))!
        process.kill(daemon, 'SIGKILL')
        t.match(await pids.answer, /^status 50/, language)
        await until(() => !pids.list().some(isRunning), 30_000)
        t.pass(`${language}: also when their daemon dies`)
        let last = ''
        const isServed = async () => {
          last = await ask(language, 'echo again')
          return last === 'again'
        }
        await until(isServed, 30_000).catch(() => {})
        t.equal(last, 'again', 'the next daemon can start workers too')
      }
      await Promise.all(LANGUAGES.map(attack))
      await Promise.all(QUICK.map(endInTime))
      await Promise.all(QUICK.map(endWithDaemon))
      const folder = await ask('node', 'cd $TMPDIR/../../.. && pwd')
      const left = [started, ...descendantsOf(started)]
      fngw.child.kill('SIGTERM')
      t.match(await fngw.ended, { code: 0, signal: null })
      t.notOk(existsSync(folder), 'what functions closed to the gateway is deleted too')
      t.same(left.filter(isRunning), [], 'no process is left')
    },
  )
}

t.test(
  '[dependencies/install.12] user: packages of functions, where the gateway is not root',
  { skip: NO_ROOT },
  async t => {
    const source =
      "import left from 'left'\nexport const handler = () => ({ status: 200, body: left + ' ' + process.getuid() })"
    const wants = { type: 'module', dependencies: { left: 'file:./left' } }
    const tree = makeTree({
      'wants/left/package.json': { json: { name: 'left', version: '1.0.0', main: 'index.js' } },
      'wants/left/index.js': "module.exports = 'left is here'",
      'wants/handler.js': source,
      'wants/package.json': { json: wants },
    })
    t.teardown(() => tree.cleanup())
    chmodSync(tree.root, 0o755)
    // As npm sets it for what it starts.
    const home = t.testdir({ '.npm': {} })
    const cache = { HOME: home, npm_config_cache: join(home, '.npm') }
    const serveOnce = async (files: string): Promise<{ status: number; text: string; told: string }> => {
      const env = { ...cache, FN_ISOLATION: 'user', FN_ISOLATION_FILES: files }
      const args = ['run', tree.root, '--native', '--port', '0', '--runtimes', 'node']
      const fngw = await startCli(args, { cwd: tree.root, env })
      t.teardown(() => void fngw.child.kill('SIGKILL'))
      const answer = await fetch(`${fngw.url}/wants`)
      const text = await answer.text()
      fngw.child.kill('SIGTERM')
      await fngw.ended
      return { status: answer.status, text, told: fngw.stdout() + fngw.stderr() }
    }
    // Closed by the operator, and root's.
    chownSync(tree.path('wants'), 0, 20_005)
    chmodSync(tree.path('wants'), 0o750)
    const refused = await serveOnce('refuse')
    t.equal(refused.status, 500)
    t.match(
      refused.told,
      'wants is not writable by user 20000 (the user fngw runs as), and packages are installed beside the function',
    )
    t.match(refused.told, 'in the functions root: chown 20000 wants;')
    t.same(readdirSync(tree.path('wants')).sort(), ['handler.js', 'left', 'package.json'], 'nothing is left behind')
    t.equal(statSync(tree.path('wants')).uid, 0, 'and nothing is given away unasked')

    const closed = await serveOnce('close')
    t.match(closed, { status: 200, text: /^left is here 20005$/ }, closed.told)
    t.match(statSync(tree.path('wants')), { uid: 20_000, gid: 20_005, mode: 0o40750 })
    t.equal(statSync(tree.path('wants/handler.js')).uid, 0, 'the files in it stay whose they are')

    // Packages that are there are used, whoever put them there, also when something else changed.
    chownSync(tree.path('wants'), 0, 20_005)
    writeFileSync(tree.path('wants/handler.js'), `${source}\n`)
    const used = await serveOnce('refuse')
    t.match(used, { status: 200, text: /^left is here 20005$/ }, used.told)
  },
)

/** A call that never ends by itself, once it runs. */
async function hang(ask: (fn: string, command: string) => Promise<string>, fn: string) {
  const folder = await ask(fn, 'rm -f $TMPDIR/pids; echo $TMPDIR')
  const answer = ask(fn, HANG)
  const list = () => {
    try {
      return readFileSync(`${folder}/pids`, 'utf8').trim().split('\n').map(Number)
    } catch {
      return []
    }
  }
  let pids: number[] = []
  await until(() => {
    pids = list()
    return pids.length === 2
  }, 30_000)
  return { answer, list: () => pids }
}

/** Sends a request from inside the function and returns status and body; a string is the body of a POST. */
const CALLERS = {
  'node/handler.js': `export const handler = async ({ body }) => {
  const { url, headers, send } = JSON.parse(body)
  const response = await fetch(url, { headers, ...(send && { method: 'POST', body: send }) })
  return response.status + ' ' + (await response.text())
}`,
  'python/handler.py': `import json, urllib.error, urllib.request
def handler(event):
    asked = json.loads(event['body'])
    request = urllib.request.Request(asked['url'], headers=asked['headers'], data=(asked.get('send') or '').encode() or None)
    try:
        with urllib.request.urlopen(request) as response:
            return f'{response.status} {response.read().decode()}'
    except urllib.error.HTTPError as refused:
        return f'{refused.code} {refused.read().decode()}'`,
  'php/handler.php': `<?php function handler($event) {
  $asked = json_decode($event['body'], true);
  $headers = array_map(fn ($name) => $name . ': ' . $asked['headers'][$name], array_keys($asked['headers']));
  $http = ['header' => $headers, 'ignore_errors' => true] + (isset($asked['send']) ? ['method' => 'POST', 'content' => $asked['send']] : []);
  $text = file_get_contents($asked['url'], false, stream_context_create(['http' => $http]));
  return explode(' ', $http_response_header[0])[1] . ' ' . $text;
}`,
} as const

t.test(
  '[control/access.15] user: a function that calls the gateway is not a local caller',
  { skip: NO_ROOT },
  async t => {
    const languages = QUICK as (keyof typeof HANDLERS)[]
    const tree = makeRoot(t, languages)
    for (const [file, source] of Object.entries(CALLERS))
      if (languages.includes(file.split('/')[0] as Language)) tree.write({ [file]: source })
    const env = {
      FN_ISOLATION: 'user',
      FN_ISOLATION_FILES: 'close',
      FN_PYTHON_BIN: PYTHON,
      FN_ADMIN_TOKEN: TOKEN,
      FN_UI_ENABLED: '1',
      FN_CONSOLE_WRITE_ENABLED: '1',
    }
    const args = ['run', tree.root, '--native', '--port', '0', '--runtimes', languages.join(',')]
    const fngw = await startCli(args, { cwd: tree.root, env })
    t.teardown(() => void fngw.child.kill('SIGKILL'))
    const mark = { 'X-Fngw-Request': '1' }
    const callAll = async (language: (typeof languages)[number]): Promise<void> => {
      const call = async (path: string, headers: object = mark, send?: string): Promise<string> => {
        const body = JSON.stringify({ url: `${fngw.url}${path}`, headers, send })
        const response = await fetch(`${fngw.url}/${language}`, { method: 'POST', body })
        return ((await response.json()) as string) ?? ''
      }
      for (const path of [
        'catalog',
        'function-code?runtime=node&name=node',
        'function-env?name=node',
        'logs',
        'jobs',
        'ui-state',
        'events',
      ])
        t.equal(await call(`/_fn/${path}`), '401 {"error":"login required"}', `${language}: ${path}`)
      for (const path of ['invoke', 'jobs', 'reload', 'function?runtime=node&name=new'])
        t.equal(
          await call(`/_fn/${path}`, mark, '{"name":"node"}'),
          '401 {"error":"login required"}',
          `${language}: POST ${path}`,
        )
      const health = await call('/_fn/health')
      t.match(health, /^200 /, 'health is open')
      t.notMatch(health, tree.root, 'and names no path')
    }
    await Promise.all(languages.map(callAll))
    const login = await fetch(`${fngw.url}/_fn/login`, {
      method: 'POST',
      headers: mark,
      body: JSON.stringify({ token: TOKEN }),
    })
    t.equal(login.status, 200)
    const cookie = login.headers.getSetCookie()[0]!.split(';')[0]!
    t.equal((await fetch(`${fngw.url}/_fn/catalog`, { headers: { cookie } })).status, 200, 'a session is let in')
    t.equal((await fetch(`${fngw.url}/_fn/catalog`, { headers: { 'x-fn-admin-token': TOKEN } })).status, 200)
    t.not((await fetch(`${fngw.url}/console`)).status, 401, 'the page to log in with is open')
    const logs = runCli(['logs', '--url', fngw.url], { cwd: tree.root })
    t.match(logs, { status: 1, stderr: /401: login required\nSet FN_ADMIN_TOKEN to the admin token of the gateway/ })
    t.equal(runCli(['jobs', 'ls', '--url', fngw.url], { cwd: tree.root, env: { FN_ADMIN_TOKEN: TOKEN } }).status, 0)
  },
)

t.test(
  '[runtime/isolation.9] user: a folder that belongs to a user of the range is run as that user, closed to all others',
  { skip: NO_ROOT },
  async t => {
    const tree = makeRoot(t, ['node', 'python'])
    const closed = tree.path('node')
    chownSync(closed, 20_777, 20_777)
    for (const name of readdirSync(closed)) chownSync(join(closed, name), 20_777, 20_777)
    chmodSync(join(closed, 'handler.js'), 0o600)
    chmodSync(closed, 0o700)
    const gateway = await createGateway({
      functionsRoot: tree.root,
      runtimes: ['node', 'python'],
      binaries: { python: PYTHON },
      isolation: 'user',
      isolationFiles: 'close',
    })
    t.teardown(() => gateway.close())
    t.equal(await run(gateway, 'node', 'id -u'), '20777')
    t.match(await run(gateway, 'python', `cat ${closed}/handler.js`), /ermission denied/)
  },
)

t.test(
  '[runtime/isolation.10] user: functions whose files others can read are not served, and it is told what to type',
  { skip: NO_ROOT },
  async t => {
    const tree = makeRoot(t, ['node', 'python', 'php'])
    tree.write({ 'lua/handler.lua': 'return function() return { status = 200, body = "lua" } end' })
    chmodSync(tree.path('python/handler.py'), 0o600)
    const settings = {
      functionsRoot: tree.root,
      runtimes: ['node', 'python', 'php', 'lua'] as const,
      binaries: { python: PYTHON },
      isolation: 'user',
      adminToken: TOKEN,
    } as const
    const gateway = await createGateway(settings)
    t.teardown(() => gateway.close())
    const found = gateway.warnings.filter(({ code }) => code === 'ISOLATION_READABLE')
    t.same(found.map(({ path }) => path).sort(), ['lua', 'node', 'php', 'python'])
    for (const name of ['lua', 'node', 'php', 'python']) {
      const { hint, message } = found.find(({ path }) => path === name)!
      t.match(message, `other functions can read ${name} (755): ${name}/handler.`)
      const url = `/${name}`
      const method = name === 'lua' ? 'GET' : 'POST'
      const answer = await gateway.inject({ method, url, body: method === 'GET' ? null : 'true' })
      t.equal(answer.status, 503, name)
      t.match(answer.text(), 'chgrp', 'in development the answer says it too')
      const command = hint.slice(hint.indexOf('chgrp'))
      t.match(command, new RegExp(`^chgrp 2\\d{4} ${name} && chmod g=rX,o= ${name}$`))
      execFileSync('sh', ['-c', command], { cwd: tree.root })
    }
    const [unreadable] = gateway.warnings.filter(({ code }) => code === 'ISOLATION_UNREADABLE')
    t.match(unreadable, { path: 'python/handler.py', message: /^python\/handler\.py \(600\) is closed to user 2\d{4}/ })
    execFileSync('sh', ['-c', unreadable!.hint], { cwd: tree.root })
    await gateway.reload()
    t.same(
      gateway.warnings.filter(({ code }) => code.startsWith('ISOLATION_')),
      [],
    )
    for (const name of ['node', 'python', 'php'] as const) t.match(await run(gateway, name, 'id -u'), /^2\d{4}$/, name)
    t.equal((await gateway.inject('/lua')).text(), 'lua')
    chmodSync(tree.path('node'), 0o755)
    await gateway.reload()
    const opened = await gateway.inject({ method: 'POST', url: '/node', body: 'true' })
    t.equal(opened.status, 503, 'opened again while it is served')
    await gateway.close()
    const warned = await createGateway({ ...settings, isolationFiles: 'warn' })
    t.teardown(() => warned.close())
    t.match(await run(warned, 'node', 'id -u'), /^2\d{4}$/, 'unless only a warning is wanted')
    t.match(warned.warnings, [{ code: 'ISOLATION_READABLE', path: 'node' }])
  },
)

t.test(
  '[runtime/isolation.15, runtime/isolation.16, files/function-file.1] user: the gateway reads no file of another function for a function',
  { skip: NO_ROOT },
  async t => {
    const echo = 'export const handler = ({ env }) => ({ status: 200, body: JSON.stringify(env) })'
    const tree = makeTree({
      'victim/handler.js': echo,
      'victim/fn.env.json': { json: { STOLEN: SECRET } },
      'victim/keys.lua': `return { key = "${SECRET}" }`,
      'victim/package.json': { json: { name: 'victim', version: '1.0.0', dependencies: {} } },
      'victim/composer.json': { json: { name: 'a/victim', version: '1.0.0' } },
      '_shared/open.lua': 'return { key = "shared" }',
      'by-env/handler.js': echo,
      'by-dotenv/handler.js': echo,
      'by-folder/handler.js': echo,
      'by-path/handler.js': "import victim from 'victim'\nexport const handler = () => victim",
      'by-path/package.json': { json: { type: 'module', dependencies: { victim: 'file:../victim' } } },
      'by-manifest/handler.js': echo,
      'by-list/handler.py': 'import left_of_nothing\ndef handler(event):\n  return 1',
      'by-composer/handler.php': '<?php function handler($event) { return 1; }',
      'by-composer/composer.json': {
        json: { require: { 'a/victim': '*' }, repositories: [{ type: 'path', url: '../victim' }] },
      },
      'by-require/handler.lua': 'local keys = require("victim.keys")\nfunction handler() return keys.key end',
      'by-shared/handler.lua': 'local keys = require("_shared.open")\nfunction handler() return keys.key end',
      'by-handler/fn.config.json': { json: { runtime: 'lua', entrypoint: 'handler.lua' } },
    })
    t.teardown(() => tree.cleanup())
    chmodSync(tree.root, 0o755)
    symlinkSync('../victim/fn.env.json', tree.path('by-env/fn.env.json'))
    symlinkSync('../victim/fn.env.json', tree.path('by-dotenv/.env'))
    symlinkSync('../victim/package.json', tree.path('by-manifest/package.json'))
    symlinkSync('../victim/fn.env.json', tree.path('by-list/requirements.txt'))
    symlinkSync('../victim/keys.lua', tree.path('by-handler/handler.lua'))
    const gateway = await createGateway({
      functionsRoot: tree.root,
      runtimes: ['node', 'python', 'php', 'lua'],
      binaries: { python: PYTHON },
      isolation: 'user',
      isolationFiles: 'close',
      adminToken: TOKEN,
    })
    t.teardown(() => gateway.close())
    t.match((await injectBuilt(gateway, '/victim')).text(), SECRET)
    const wanted: Record<string, [status: number, text: RegExp]> = {
      env: [503, /by-env\/fn\.env\.json cannot be read/],
      dotenv: [200, /^\{\}$/],
      path: [500, /victim: file:\.\.\/victim is not in the function's own folder/],
      manifest: [500, /by-manifest\/package\.json is a link/],
      list: [500, /by-list\/requirements\.txt is a link/],
      composer: [500, /is not in the function's own folder|leads out of the function's own folder/],
      require: [500, /cannot read victim\/keys\.lua: it is closed to user 2\d{4}/],
      shared: [200, /^"?shared/],
      handler: [500, /cannot read by-handler\/handler\.lua: it is closed to user/],
    }
    for (const [name, [status, text]] of Object.entries(wanted)) {
      const answer = await (status === 503 ? gateway.inject(`/by-${name}`) : injectBuilt(gateway, `/by-${name}`))
      t.equal(answer.status, status, name)
      t.match(answer.text(), text, name)
      t.notMatch(answer.text(), SECRET, name)
    }
    const warned = gateway.warnings.filter(({ code }) => code === 'UNREADABLE_FILE').map(({ path }) => path)
    t.same(warned.sort(), ['by-dotenv/.env', 'by-env/fn.env.json'])
  },
)

t.test(
  '[runtime/isolation.9] user: a folder that is given to another user gets new workers',
  { skip: NO_ROOT },
  async t => {
    const { gateway, root } = await serve(t, ['node'], { isolation: 'user', isolationFiles: 'close' })
    const before = await run(gateway, 'node', 'id -u')
    const other = before === '20123' ? 20_124 : 20_123
    chownSync(join(root, 'node'), 0, other)
    await gateway.reload()
    t.equal(await run(gateway, 'node', 'id -u'), String(other))
  },
)

t.test(
  '[runtime/isolation.11, reliability.7] user: a root or program that functions cannot reach is named, nothing runs as root instead',
  { skip: NO_ROOT },
  async t => {
    const tree = makeRoot(t, ['node', 'python'])
    chmodSync(tree.root, 0o700)
    const settings = { functionsRoot: tree.root, runtimes: ['node'], isolation: 'user' } as const
    const gateway = await createGateway(settings)
    t.teardown(() => gateway.close())
    const answer = await gateway.inject({ method: 'POST', url: '/node', body: 'id -u' })
    t.equal(answer.status, 503)
    const { reason } = (gateway.health() as { runtimes: Record<string, { health: { reason: string } }> }).runtimes.node!
      .health
    t.match(reason, `${tree.root} is closed to them; chmod o+x ${tree.root}`)
  },
)

t.test('[runtime/isolation.12] user: what a killed gateway leaves is removed', { skip: NO_ROOT }, async t => {
  const { SocketFolder } = await import('../../lib/runtime/package-files.ts')
  const tree = makeTree({ 'fngw-aaaaaa/u/20001/tmp/file': 'of a function' })
  t.teardown(() => tree.cleanup())
  writeFileSync(tree.path('fngw-aaaaaa/node-1.sock'), '')
  mkdirSync(tree.path('fngw-aaaaaa/cache'))
  chmodSync(tree.path('fngw-aaaaaa'), 0o711)
  await new SocketFolder([tree.root]).removeStale()
  await until(() => !existsSync(tree.path('fngw-aaaaaa')))
  t.notOk(existsSync(tree.path('fngw-aaaaaa')))
})
