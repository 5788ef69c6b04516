/**
 * Attacks of functions and of the packages that they install on others, with FN_ISOLATION=user. Page: runtime/isolation.
 *
 * The gateway is `fngw run` started as root; it goes on as a user of its own.
 */

import { chmodSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import { endProduct, type Product, type RunningProduct, startProduct } from '../helpers/built.ts'
import { NO_COMPOSER } from '../helpers/composer-bed.ts'
import { HOSTILE_PACKAGES, toScript, VICTIM_SECRET } from './hostile-packages.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'
import type { Outcome } from './attack.ts'

const UIDS = '39000-39999'
const TOKEN = 'planted-admin-token'
const PYTHON = '/usr/bin/python3'
const TARGETS = { python: '.deps', node: 'node_modules', php: 'vendor' } as const
/** Reads for itself, and has the gateway read, what is another function's. */
const LINKS = [
  'fn.env.json',
  '.env',
  'fn.config.json',
  'fn.routes.json',
  'schema.json',
  'requirements.txt',
  'package.json',
  'package-lock.json',
  'composer.json',
  'composer.lock',
] as const

/** Why it cannot be run here; null when it can. */
export function findUserObstacle(): string | null {
  return process.platform === 'linux' && process.geteuid?.() === 0 ? null : 'changing users needs Linux and root'
}

export async function attackUsers(product: Product): Promise<Outcome> {
  const broken: string[] = []
  const tree = makeTree({
    'victim/handler.js': `export const handler = () => 'victim' // ${VICTIM_SECRET}\n`,
    'victim/fn.env.json': { json: { KEY: VICTIM_SECRET } },
    'escape/handler.js': ESCAPE,
    'escape/fn.config.json': { json: { timeout_ms: 2000 } },
    ...linkFunctions(),
  })
  const languages = (Object.keys(HOSTILE_PACKAGES) as (keyof typeof HOSTILE_PACKAGES)[]).filter(
    language => !HOSTILE_PACKAGES[language].skip && (language !== 'php' || !NO_COMPOSER),
  )
  chmodSync(tree.root, 0o755)
  for (const language of languages) {
    tree.write(HOSTILE_PACKAGES[language].files(toScript(tree.root)))
    HOSTILE_PACKAGES[language].pack?.(tree.root)
  }
  const env = {
    FN_ISOLATION: 'user',
    FN_ISOLATION_FILES: 'close',
    FN_ISOLATION_UIDS: UIDS,
    FN_ADMIN_TOKEN: TOKEN,
    FN_PYTHON_BIN: PYTHON,
    FN_PY_REQUIREMENTS_OPTIONS: '1',
    FN_FUNCTION_PROCESSES: '200',
    PIP_NO_INDEX: '1',
    npm_config_offline: 'true',
  }
  const running = await startProduct(product, tree.root, { env, args: ['--runtimes', 'node,python,php'] })
  const check = (name: string, holds: boolean): void => {
    if (!holds) broken.push(name)
  }
  try {
    for (const language of languages) {
      const { text } = await ask(running, `/${language}`)
      check(`${language}: the build did not run`, /^uid=39\d{3}$/m.test(text) && !/^uid=39000$/m.test(text))
      check(
        `${language}: the build has groups, capabilities or the secret`,
        /^caps=$/m.test(text) && !text.includes(VICTIM_SECRET),
      )
      check(`${language}: the build wrote to another function`, !existsSync(tree.path('victim/planted')))
      check(`${language}: the packages are not there`, existsSync(tree.path(`${language}/${TARGETS[language]}`)))
    }
    for (const name of LINKS) {
      const { text } = await ask(running, `/link-${toSlug(name)}`)
      check(`a link in the place of ${name} gives the secret`, !text.includes(VICTIM_SECRET))
    }
    for (const path of [
      'catalog',
      'function-env?name=victim',
      'function-code?runtime=node&name=victim',
      'logs',
      'jobs',
    ]) {
      const { text } = await ask(running, `/escape?path=${encodeURIComponent(`/_fn/${path}`)}&port=${running.port}`)
      check(`a function reads /_fn/${path}`, text.startsWith('401'))
    }
    check('the fork bomb has an answer', (await ask(running, '/escape?bomb=1')).status !== 200)
    check('another function does not answer beside it', (await ask(running, '/victim')).status === 200)
    check('what stops its own processes has an answer', (await ask(running, '/escape?stop=1')).status === 504)
    check('a chain that stops has an answer', (await ask(running, '/escape?chain=1')).status === 504)
    check('a function stops the gateway by stopping its own processes', (await ask(running, '/victim')).status === 200)
    await waitForNone(() => listUsersProcesses().length > 0 && listUsersProcesses().some(isDetached), 20_000)
    const left = listUsersProcesses().filter(isDetached)
    check(`left behind: ${left.join(', ')}`, left.length === 0)
    check('what was printed holds the secret', !(running.stdout() + running.stderr()).includes(VICTIM_SECRET))
  } finally {
    await endProduct(running)
    tree.cleanup()
  }
  return {
    broken,
    seen: `packages in ${languages.join(', ')}, ${LINKS.length} links, the control plane, a fork bomb, a function that stops its processes`,
  }
}

/** Calls the gateway as a local client would, starts detached processes without end, or stops all processes of its user, also from processes that fork and exit. */
const ESCAPE = `import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
export const handler = async ({ query }) => {
  if (query.bomb) {
    for (;;) {
      try { spawn('setsid', ['env', '-i', 'sleep', '1359'], { stdio: 'ignore', detached: true }).on('error', () => {}).unref() } catch {}
      await new Promise(setImmediate)
    }
  }
  if (query.stop) {
    spawn('setsid', ['sh', '-c', 'while :; do kill -s STOP -- -1; done; sleep 1360'], { stdio: 'ignore', detached: true }).unref()
    for (;;) process.kill(-1, 'SIGSTOP')
  }
  if (query.chain) {
    const file = process.env.TMPDIR + '/chain.sh'
    writeFileSync(file, 'kill -s STOP -- -1; sh "$0" & exit')
    spawn('setsid', ['sh', file], { stdio: 'ignore', detached: true, env: { PATH: process.env.PATH } }).unref()
    await new Promise(() => {})
  }
  const answer = await fetch('http://127.0.0.1:' + query.port + query.path, { headers: { 'X-Fngw-Request': '1' } })
  return { status: 200, body: answer.status + ' ' + (await answer.text()) }
}
`

/** One function for each file, which is a link to the victim's environment. */
function linkFunctions(): Record<string, TreeEntry> {
  return Object.fromEntries(
    LINKS.flatMap((name): [string, TreeEntry][] => [
      [
        `link-${toSlug(name)}/handler.js`,
        'export const handler = ({ env }) => ({ status: 200, body: JSON.stringify(env ?? {}) })\n',
      ],
      [`link-${toSlug(name)}/${name}`, { symlink: '../victim/fn.env.json' }],
    ]),
  )
}

const toSlug = (name: string): string => name.replace(/[^a-z]+/g, '-').replace(/^-/, '')

async function ask(running: RunningProduct, path: string): Promise<{ status: number; text: string }> {
  const limit = performance.now() + 120_000
  for (;;) {
    const answer = await fetch(`http://127.0.0.1:${running.port}${path}`)
    const text = await answer.text()
    const isComing = answer.status === 503 && /preparing|installing|building/.test(text)
    if (!isComing || performance.now() > limit) return { status: answer.status, text }
    await new Promise(resolve => setTimeout(resolve, 200))
  }
}

const isDetached = (command: string): boolean => /sleep 13(?:5[789]|60)$|chain\.sh$/.test(command)

function listUsersProcesses(): string[] {
  return readdirSync('/proc').flatMap(name => {
    try {
      const status = /^\d+$/.test(name) ? readFileSync(`/proc/${name}/status`, 'latin1') : ''
      if (!/^Uid:\s+39\d{3}\s/m.test(status) || /^State:\s+[ZX]/m.test(status)) return []
      return [readFileSync(`/proc/${name}/cmdline`, 'latin1').replaceAll('\0', ' ').trim()]
    } catch {
      return []
    }
  })
}

async function waitForNone(isThere: () => boolean, limitMs: number): Promise<void> {
  const limit = performance.now() + limitMs
  while (isThere() && performance.now() < limit) await new Promise(resolve => setTimeout(resolve, 100))
}
