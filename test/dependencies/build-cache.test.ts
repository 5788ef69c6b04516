import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname } from 'node:path'
import t from 'tap'
import { BuildKey, Workspace } from '../../lib/dependencies/build-cache.ts'
import { blankOut, GO_TEXT, lineOf, RUST_TEXT } from '../../lib/dependencies/build.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/resolve.1] each handler file has a build folder with a name that every tool takes', async t => {
  const folderOf = (file: string) =>
    new Workspace(makeFn({ fnDir: '/srv', entryPath: `/srv/${file}` }), '.go-build').tools.path
  t.equal(folderOf('handler.go'), '/srv/.go-build/handler')
  t.equal(folderOf('get.items.go'), '/srv/.go-build/get.items')
  const names = ['[id].go', '[...id].go', '[[...id]].go', 'id.go', `${'x'.repeat(80)}.go`, 'ä ö.go', '-rf.go'].map(
    file => basename(folderOf(file)),
  )
  for (const name of names) t.match(name, /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}$/)
  t.equal(new Set(names).size, names.length)
})

t.test('[dependencies/resolve.2] a program is there when it is whole and can be run; the newest two stay', async t => {
  const tree = makeTree({ 'f/handler.go': '' })
  t.teardown(() => tree.cleanup())
  const workspace = new Workspace(makeFn({ fnDir: tree.path('f'), entryPath: tree.path('f/handler.go') }), '.go-build')
  workspace.prepare()
  t.equal(readFileSync(tree.path('f/.go-build/.gitignore'), 'utf8'), '*\n')
  t.notOk(workspace.has('a'))
  const [a, b, c] = ['a', 'b', 'c'].map(letter => letter.repeat(32)) as [string, string, string]
  const seconds = 1e6
  const left = [`.${a}`, `.${a}.0123abcd`].map(name => tree.path(`f/.go-build/handler/bin/${name}`))
  for (const file of left) {
    writeFileSync(file, 'left by a build that was killed')
    utimesSync(file, seconds - 3601, seconds - 3601)
  }
  ;[a, b, c].forEach((key, at) => {
    const draft = workspace.draft(key)
    t.notOk(existsSync(draft))
    writeFileSync(draft, key, { mode: 0o755 })
    utimesSync(draft, seconds + at, seconds + at)
    workspace.publish(key)
    t.ok(workspace.has(key))
    t.notOk(existsSync(draft))
  })
  t.same(readdirSync(tree.path('f/.go-build/handler/bin')).sort(), [b, c])
  chmodSync(workspace.binary(b), 0o644)
  t.notOk(workspace.has(b))
  writeFileSync(workspace.binary(c), '')
  t.notOk(workspace.has(c), 'a file without content is what a full disk leaves')
})

t.test('[dependencies/resolve.20] two gateways that build the same at once are not in each other’s way', async t => {
  const tree = makeTree({ 'f/handler.go': '' })
  t.teardown(() => tree.cleanup())
  const fn = makeFn({ fnDir: tree.path('f'), entryPath: tree.path('f/handler.go') })
  const [one, other] = [new Workspace(fn, '.go-build'), new Workspace(fn, '.go-build')]
  const [same, next] = ['a'.repeat(32), 'b'.repeat(32)] as const
  one.prepare()
  for (const workspace of [one, other]) writeFileSync(workspace.draft(same), 'program', { mode: 0o755 })
  one.publish(same)
  writeFileSync(one.draft(next), 'program', { mode: 0o755 })
  one.publish(next)
  other.publish(same)
  t.ok(one.has(same) && one.has(next))
  t.same(readdirSync(tree.path('f/.go-build/handler/bin')).sort(), [same, next])
})

t.test('[files/own-folder.8] a build folder that leads elsewhere: nothing there is deleted or written', async t => {
  const tree = makeTree({ 'f/handler.go': '', 'mine/one': '1', 'mine/two': '2' })
  t.teardown(() => tree.cleanup())
  const fn = makeFn({ fnDir: tree.path('f'), entryPath: tree.path('f/handler.go') })
  const key = 'a'.repeat(32)
  for (const link of ['.go-build', '.go-build/handler', '.go-build/handler/bin', '.go-build/handler/src']) {
    tree.remove('f/.go-build')
    mkdirSync(dirname(tree.path(`f/${link}`)), { recursive: true })
    symlinkSync(tree.path('mine'), tree.path(`f/${link}`))
    const build = () => {
      const workspace = new Workspace(fn, '.go-build')
      workspace.prepare()
      workspace.write('src/main.go', 'x')
      writeFileSync(workspace.draft(key), 'program', { mode: 0o755 })
      workspace.publish(key)
    }
    t.throws(build, { message: `${link} is a symbolic link` }, link)
    t.same(readdirSync(tree.path('mine')).sort(), ['one', 'two'], link)
  }
  tree.remove('f/.go-build')
  const workspace = new Workspace(fn, '.go-build')
  workspace.prepare()
  symlinkSync(tree.path('mine/one'), tree.path(`f/.go-build/handler/bin/.${key}`))
  t.notOk(existsSync(workspace.draft(key)), 'a tool writes no program through a link')
  symlinkSync('/bin/sh', workspace.binary(key))
  t.notOk(workspace.has(key))
  writeFileSync(tree.path('f/.go-build/handler/bin/notes'), 'of the user')
  for (const letter of ['b', 'c', 'd']) {
    writeFileSync(workspace.draft(letter.repeat(32)), 'x', { mode: 0o755 })
    workspace.publish(letter.repeat(32))
  }
  t.ok(existsSync(tree.path('f/.go-build/handler/bin/notes')), 'names that are not ours stay')
  symlinkSync(tree.path('mine/one'), tree.path('f/.go-build/handler/Cargo.lock'))
  t.throws(() => workspace.prepare(), { message: '.go-build/handler/Cargo.lock is a symbolic link' })
  t.same([readFileSync(tree.path('mine/one'), 'utf8'), readFileSync(tree.path('mine/two'), 'utf8')], ['1', '2'])
})

t.test('[dependencies/resolve.5] every two lists of inputs have different keys', async t => {
  const keyOf = (...inputs: [string, string | null][]) => {
    const key = new BuildKey()
    for (const [name, content] of inputs) key.add(name, content)
    return key.toString()
  }
  const keys = [
    keyOf(),
    keyOf(['a', '']),
    keyOf(['a', null]),
    keyOf(['a', 'b']),
    keyOf(['a', 'bc']),
    keyOf(['ab', 'c']),
    keyOf(['a', 'b'], ['c', '']),
    keyOf(['a', 'b1:c=0:']),
    keyOf(['c', ''], ['a', 'b']),
  ]
  t.equal(new Set(keys).size, keys.length)
  t.equal(keyOf(['a', 'b']), keyOf(['a', 'b']))
  t.match(keys[0], /^[0-9a-f]{32}$/)
})

t.test('[runtimes/go.2, runtimes/rust.3] comments and quoted text are no code', async t => {
  const cases: [rules: RegExp, text: string, code: string][] = [
    [GO_TEXT, 'a // b\nc', 'a     \nc'],
    [GO_TEXT, 'a /* b\n/* */ c */', 'a     \n      c */'],
    [GO_TEXT, 'x = "a\\"//b" + `\\`+y', 'x =          +    +y'],
    [GO_TEXT, "r = '\"' + '\\'' + z", 'r =     +      + z'],
    [GO_TEXT, '`\n// a\n` // b', ' \n    \n      '],
    [RUST_TEXT, 'a /* b /* c */ d */ e', 'a                   e'],
    [RUST_TEXT, "fn f<'a>(x: &'a str) -> char { '\"' }", "fn f<'a>(x: &'a str) -> char {     }"],
    [RUST_TEXT, 'r#"a " b"# + br"\\" + "x\\"y"', 'r#         + br    +       '],
    [RUST_TEXT, "let c = '\\''; let d = '/';", 'let c =     ; let d =    ;'],
    [GO_TEXT, 'a "open', 'a      '],
    [RUST_TEXT, 'a /* open', 'a        '],
    [RUST_TEXT, "'", "'"],
  ]
  for (const [rules, text, code] of cases) {
    const made = blankOut(text, rules)
    t.equal(made, code, text)
    t.equal(made.length, text.length)
  }
  t.same(
    [0, 2, 3, 9].map(at => lineOf('ab\ncd\n\n', at)),
    [1, 1, 2, 4],
  )
  // Its own work: others on the machine do not count.
  const started = process.cpuUsage()
  for (const piece of ['/*', '"', "'", 'r#"', '`', '\\']) blankOut(piece.repeat(100_000), RUST_TEXT)
  t.ok(process.cpuUsage(started).user < 2_000_000)
})

t.test(
  '[runtime/isolation.10] a private build is closed to all but its owner until another user is let in',
  async t => {
    const tree = makeTree({ 'f/handler.go': '' })
    t.teardown(() => tree.cleanup())
    const fn = makeFn({ fnDir: tree.path('f'), entryPath: tree.path('f/handler.go') })
    const workspace = new Workspace(fn, '.go-build', true)
    workspace.prepare()
    t.equal(statSync(workspace.tools.path).mode & 0o777, 0o700)
    chmodSync(workspace.tools.path, 0o750)
    workspace.prepare()
    t.equal(statSync(workspace.tools.path).mode & 0o777, 0o750, 'a later build keeps the rights of other users')
  },
)

t.test('[dependencies/resolve.5] a plan names the program, and is built once the program is there', async t => {
  const tree = makeTree({ 'f/handler.go': '' })
  t.teardown(() => tree.cleanup())
  const workspace = new Workspace(makeFn({ fnDir: tree.path('f'), entryPath: tree.path('f/handler.go') }), '.go-build')
  const key = '0'.repeat(32)
  const plan = workspace.plan(key, async () => {
    workspace.prepare()
    writeFileSync(workspace.draft(key), '#!/bin/sh\n', { mode: 0o755 })
    await workspace.finish(key)
  })
  t.equal(plan.binary, tree.path(`f/.go-build/handler/bin/${key}`))
  const tools = { signal: new AbortController().signal, run: () => Promise.reject(new Error('not needed')) }
  t.same(await plan.build?.(tools), { packages: null, bytes: 10, names: [], isShared: false })
  t.equal(workspace.plan(key, async () => {}).build, null)
})
