/** What packages and sources of one function can do to others while they are built, with FN_ISOLATION=user. */

import { chmodSync, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import t, { type Test } from 'tap'
import { startCli } from '../helpers/cli.ts'
import { missingToolchain } from '../helpers/compiled.ts'
import { NO_COMPOSER } from '../helpers/composer-bed.ts'
import { HOSTILE_PACKAGES, toScript, VICTIM_SECRET } from '../attack/hostile-packages.ts'
import { startedGo } from './shell-handlers.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

t.setTimeout(280_000)

const NO_ROOT =
  process.platform !== 'linux' || process.geteuid?.() !== 0 ? 'changing users needs Linux and root' : false

const VICTIM: Record<string, TreeEntry> = {
  'victim/handler.js': `export const handler = () => 'victim' // ${VICTIM_SECRET}\n`,
  'victim/fn.env.json': { json: { KEY: VICTIM_SECRET } },
  'victim/key.go': `package fn\n\nconst Key = "${VICTIM_SECRET}"\n`,
  'victim/key.h': `#define KEY ${VICTIM_SECRET}\n`,
}

/** Starts `fngw run` as root, which goes on as user 33000. */
async function serve(
  t: Test,
  files: (root: string) => Record<string, TreeEntry>,
  runtimes: string,
  { pack, go }: { pack?: ((root: string) => void) | undefined; go?: string } = {},
) {
  const tree = makeTree(VICTIM)
  t.teardown(() => tree.cleanup())
  chmodSync(tree.root, 0o755)
  chmodSync(tree.path('victim/fn.env.json'), 0o600)
  tree.write(files(tree.root))
  pack?.(tree.root)
  const env = {
    FN_ISOLATION: 'user',
    FN_ISOLATION_FILES: 'close',
    // Other tests have functions with the same names.
    FN_ISOLATION_UIDS: '33000-33999',
    FN_PYTHON_BIN: '/usr/bin/python3',
    FN_PY_REQUIREMENTS_OPTIONS: '1',
    PIP_NO_INDEX: '1',
    npm_config_offline: 'true',
    ...(go !== undefined && { FN_GO_BIN: go }),
  }
  const args = ['run', tree.root, '--native', '--port', '0', '--runtimes', runtimes]
  const fngw = await startCli(args, { cwd: tree.root, env })
  t.teardown(async () => {
    fngw.child.kill('SIGTERM')
    await fngw.ended
  })
  const ask = async (path: string): Promise<{ status: number; text: string }> => {
    for (;;) {
      const answer = await fetch(`${fngw.url}${path}`)
      const text = await answer.text()
      if (answer.status !== 503 || !/preparing|installing|building/.test(text)) return { status: answer.status, text }
    }
  }
  return { tree, fngw, ask }
}

const toFields = (text: string) =>
  Object.fromEntries(text.split('\n').map(line => [line.split('=', 1)[0]!, line.slice(line.indexOf('=') + 1).trim()]))

/** Processes that run as one of the users of functions. */
function listProcessesOf(uid: string): string[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return []
    try {
      const status = readFileSync(`/proc/${name}/status`, 'latin1')
      if (!new RegExp(`^Uid:\\s+${uid}\\s`, 'm').test(status) || /^State:\s+Z/m.test(status)) return []
      return [readFileSync(`/proc/${name}/cmdline`, 'latin1').replaceAll('\0', ' ').trim()]
    } catch {
      return []
    }
  })
}

const DENIED = /ermission denied|not permitted|annot/

for (const [language, { skip, files, pack }] of Object.entries(HOSTILE_PACKAGES)) {
  t.test(
    `[runtime/isolation.17, files/tool-user.1] ${language}: the build of a package runs as the user of its function`,
    { skip: NO_ROOT || skip || (language === 'php' && NO_COMPOSER) },
    async t => {
      const { tree, ask, fngw } = await serve(t, root => files(toScript(root)), `node,${language}`, { pack })
      const { status, text } = await ask(`/${language}`)
      if (!t.equal(status, 200, `${text}${fngw.stderr()}`)) return
      const seen = toFields(text)
      t.match(seen.uid, /^33\d{3}$/)
      t.not(seen.uid, '33000', 'not the user of the gateway')
      t.equal(seen.groups, seen.uid, 'no other group')
      t.equal(seen.caps, '', 'no capability')
      t.equal(seen.privs, '1', 'and no way to gain one')
      for (const name of ['secret', 'code', 'write', 'state', 'sets', 'users']) t.match(seen[name], DENIED, name)
      t.notMatch(text, VICTIM_SECRET)
      t.notOk(existsSync(tree.path('victim/planted')))
      t.same(
        listProcessesOf(seen.uid!).filter(command => /^sleep 135[78]$/.test(command)),
        [],
        'what it detached has ended with it',
      )
      t.match(await ask('/victim'), { status: 200, text: /victim/ })
      const target = { python: '.deps', node: 'node_modules', php: 'vendor' }[language]!
      t.equal(
        statSync(tree.path(`${language}/${target}`)).uid,
        33_000,
        'what is served is the gateway’s: no function changes it',
      )
    },
  )
}

t.test(
  '[runtime/isolation.17] packages that leave links to files of others are not installed',
  { skip: NO_ROOT },
  async t => {
    const toLink = (root: string) => `ln -sf ${root}/victim/handler.js stolen.js`
    const { tree, ask } = await serve(t, root => HOSTILE_PACKAGES.node.files(toLink(root)), 'node', {
      pack: HOSTILE_PACKAGES.node.pack,
    })
    const { status, text } = await ask('/node')
    t.equal(status, 500, text)
    t.notMatch(text, VICTIM_SECRET)
    t.notOk(existsSync(tree.path('node/node_modules/evil')))
  },
)

t.test(
  '[runtime/isolation.17] go: the compiler reads for a function what the function may read',
  { skip: NO_ROOT || missingToolchain('go') !== null ? 'needs root and go' : false },
  async t => {
    const handler =
      'package fn\n\nimport ("os"; "strconv")\n\nfunc stub()\n\nfunc handler(event map[string]any) map[string]any {\n' +
      '\treturn map[string]any{"status": 200, "body": strconv.Itoa(os.Getuid())}\n}\n'
    const files = (root: string): Record<string, TreeEntry> => ({
      'plain/handler.go': handler.replace('\nfunc stub()\n', ''),
      'plain/fn.config.json': { json: { timeout_ms: 200_000 } },
      'evil/go.mod': 'module evil\n\ngo 1.20\n',
      'evil/handler.go': handler,
      'evil/stub_amd64.s': `#include "${root}/victim/key.h"\nTEXT ·stub(SB), 4, $0\n\tKEY\n`,
    })
    const { ask, fngw } = await serve(t, files, 'node,go', { go: await startedGo(t) })
    const plain = await ask('/plain')
    t.match(plain, { status: 200, text: /^33\d{3}$/ }, `${plain.text}${fngw.stderr()}`)
    const evil = await ask('/evil')
    t.not(evil.status, 200, evil.text)
    t.notMatch(evil.text + fngw.stdout() + fngw.stderr(), VICTIM_SECRET)
  },
)

t.test(
  '[runtime/isolation.13, files/tool-user.1] a gateway that is started again, by root, leaves users what is theirs',
  { skip: NO_ROOT },
  async t => {
    const { node } = HOSTILE_PACKAGES
    const { tree, ask, fngw } = await serve(t, root => node.files(toScript(root)), 'node', { pack: node.pack })
    t.equal((await ask('/node')).status, 200)
    fngw.child.kill('SIGTERM')
    await fngw.ended
    const users = tree.path('.svc/users')
    const [uid = ''] = readdirSync(users)
    t.match(statSync(`${users}/${uid}`), { uid: 33_000, gid: Number(uid) })
    const again = await startCli(['run', tree.root, '--native', '--port', '0', '--runtimes', 'node'], {
      cwd: tree.root,
      env: { FN_ISOLATION: 'user', FN_ISOLATION_FILES: 'close', FN_ISOLATION_UIDS: '33000-33999' },
    })
    t.equal((await fetch(`${again.url}/node`)).status, 200)
    again.child.kill('SIGTERM')
    await again.ended
    t.equal(statSync(`${users}/${uid}/home`).gid, Number(uid))
    const left = readdirSync(`${users}/${uid}`).filter(name => name !== 'home' && name !== 'dweller')
    t.same(left, [], 'drafts are deleted')
  },
)
