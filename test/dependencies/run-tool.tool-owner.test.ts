import { chmodSync, chownSync, lstatSync } from 'node:fs'
import t from 'tap'
import { readPowers } from '../../lib/config/isolation.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { runTool, ToolOwner } from '../../lib/dependencies/run-tool.ts'
import { makeTree } from '../helpers/tree.ts'

const OWNER = 10_777
const skip = process.geteuid?.() !== 0 && 'only root changes users'

function makeBed(t: { teardown: (done: () => void) => void }, owner: number) {
  const tree = makeTree({ 'closed/tool': '', 'f/handler.js': '' })
  t.teardown(tree.cleanup)
  chownSync(tree.root, owner, owner)
  const refused: string[] = []
  const find = (powers = readPowers()) =>
    ToolOwner.find({
      functionsRoot: tree.root,
      powers,
      reached: [process.execPath],
      onRefused: why => refused.push(why),
    })
  return { tree, refused, find }
}

t.test('[dependencies/install.16] tools run as the owner of the functions folder below root', { skip }, async t => {
  const { tree, find, refused } = makeBed(t, OWNER)
  // As a home is: nobody else gets in.
  chmodSync(tree.root, 0o700)
  const user = find()
  t.same(await user!.of('/bin/sh'), { uid: OWNER, gid: OWNER })
  const run = {
    ...{ command: '/bin/sh', args: ['-c', 'id -u; id -g; id -G'], cwd: tree.root, env: {}, timeoutMs: 60_000 },
    ...{ isPlain: false, user: await user!.of('/bin/sh'), signal: new AbortController().signal },
  }
  const { code, output } = await runTool(run, systemClock)
  t.same([code, output], [0, `${OWNER}\n${OWNER}\n${OWNER}\n`])
  t.same(refused, [])
})

t.test(
  '[dependencies/install.16] their home is a folder of the owner, without what lies in that of root',
  { skip },
  t => {
    const { tree, find } = makeBed(t, OWNER)
    const env = { HOME: '/root', PATH: '/root/bin', PIP_CACHE_DIR: '/root/.cache', XDG: '/rooted', LANG: 'C' }
    const home = tree.path('.svc/home')
    t.same(find()!.toEnv(env), { HOME: home, PATH: '/root/bin', XDG: '/rooted', LANG: 'C' })
    t.equal(lstatSync(home).uid, OWNER)
    t.end()
  },
)

t.test(
  '[dependencies/install.16] a tool that the owner cannot reach runs as root, with one warning',
  { skip },
  async t => {
    const { tree, find, refused } = makeBed(t, OWNER)
    chmodSync(tree.path('closed'), 0o700)
    const user = find()!
    t.equal(await user.of(tree.path('closed/tool')), null)
    t.equal(await user.of(tree.path('closed/tool')), null)
    t.match(refused, [
      /closed\/tool runs as root: user 10777, who owns the functions folder, cannot reach .*closed\/tool$/,
    ])
    t.equal(refused.length, 1)
  },
)

t.test('[dependencies/install.16] elsewhere tools run as the gateway does', { skip }, t => {
  t.equal(makeBed(t, 0).find(), null, 'the folder is that of root')
  const { find } = makeBed(t, OWNER)
  t.equal(find({ ...readPowers(), uid: 1000 }), null, 'the gateway is not root')
  t.equal(find({ ...readPowers(), capabilities: 0n }), null, 'root cannot change users')
  t.end()
})
