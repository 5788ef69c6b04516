import t from 'tap'
import { GoPackage, OWN_MODULE } from '../../lib/dependencies/go.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

const HANDLER = 'func handler(event map[string]any) map[string]any { return nil }\n'

function read(entries: Record<string, TreeEntry>, handler: string | null = null) {
  const tree = makeTree(entries)
  t.teardown(tree.cleanup)
  const fn = makeFn({
    runtime: 'go',
    fnDir: tree.path('hello'),
    entryPath: tree.path('hello/handler.go'),
    entryFile: 'hello/handler.go',
    policy: { handler },
  })
  return { tree, fn, go: () => new GoPackage(fn, tree.root) }
}

t.test('[runtimes/go.1] the package is the handler and its helpers', async t => {
  const { go } = read({
    'hello/handler.go': `package a\n${HANDLER}`,
    'hello/util.go': 'package a\n',
    'hello/_shared.go': 'package a\n',
    'hello/util_test.go': '',
    'hello/main.go': '',
    'hello/get.go': '',
    'hello/[id].go': '',
    'hello/x.txt': '',
  })
  t.same(
    go().members.map(({ name }) => name),
    ['handler.go', '_shared.go', 'util.go'],
  )
  t.equal(go().symbol, 'handler')
})

t.test('[runtimes/go.2] which callable it is', async t => {
  const symbolOf = (text: string, wanted: string | null = null) =>
    read({ 'hello/handler.go': text }, wanted).go().symbol
  t.equal(symbolOf('package a\nfunc Handler(e any) any {}'), 'Handler')
  t.equal(symbolOf('package a\nvar handler = f\nfunc Handler() {}'), 'handler')
  t.equal(symbolOf('package a\nfunc run(e any) any {}', 'run'), 'run')
  for (const text of [
    '',
    '// func handler(',
    'package a\nfunc (x T) handler() {}',
    'package a\n/*\nfunc handler()\n*/',
    'func handlers() {}',
  ])
    t.throws(() => symbolOf(text), {
      code: 'LOAD_FAILED',
      message: 'hello/handler.go: no package-level function handler or Handler',
      detail: { file: 'hello/handler.go', line: 1 },
    })
  t.throws(() => symbolOf('func handler() {}', 'run'), { message: /no package-level function run$/ })
})

t.test('[runtimes/go.4] a main is refused with its place, in a helper too', async t => {
  const text = `package main\n\n// func main() is no main\n${HANDLER}\nfunc main() {}\n`
  t.throws(() => read({ 'hello/handler.go': text }).go(), {
    message: 'hello/handler.go:6: func main must not be there: the gateway calls the handler',
    detail: { file: 'hello/handler.go', line: 6, hint: /remove func main/ },
  })
  const files = { 'hello/handler.go': `package a\n${HANDLER}`, 'hello/b.go': 'package a\nfunc main ( ) {}' }
  t.throws(() => read(files).go(), { message: /^hello\/b\.go:2: func main/ })
})

t.test('[runtimes/go.1] files become package main and keep their lines', async t => {
  const { go, tree } = read({
    'hello/handler.go': `\uFEFF// package wrong\n/* package wrong */ package \u00fcber\n${HANDLER}`,
  })
  const pack = go()
  t.equal(
    pack.toMainPackage(pack.members[0]!),
    `//line ${tree.path('hello/handler.go')}:1:1\n// package wrong\n/* package wrong */ package main\n${HANDLER}`,
  )
  t.equal(
    pack.toMainPackage({ name: 'x.go', text: 'no clause', code: 'no clause' }),
    `//line ${tree.path('hello/x.go')}:1:1\nno clause`,
  )
})

t.test('[runtimes/go.5, dependencies/resolve.5] what else changes the program', async t => {
  const { go, tree } = read({
    'hello/handler.go': `package a\n//go:embed page.html "a b.txt" all:static/*.css missing\nimport "${OWN_MODULE}/sub"\n${HANDLER}`,
    'hello/page.html': '',
    'hello/a b.txt': '',
    'hello/static/x.css': '',
    'hello/static/y.js': '',
    'hello/sub/s.go': '',
    'hello/other/o.go': '',
  })
  const names = go()
    .otherInputs(null)
    .map(path => path.slice(tree.root.length + 7))
  t.same(names, ['a b.txt', 'other/o.go', 'page.html', 'static/x.css', 'static/y.js', 'sub/s.go'])
  const plain = read({ 'hello/handler.go': `package a\n${HANDLER}`, 'hello/sub/s.go': '' })
  t.same(plain.go().otherInputs(null), [])
  t.equal(plain.go().otherInputs('').length, 1, 'with a go.mod its packages may be imported by any name')
})

t.test('[runtimes/go.3] a wrong signature is told with what stands there', async t => {
  const { go } = read({ 'hello/handler.go': 'package a\n\nfunc handler(s string) (a, b int) {\n}\n' })
  t.match(go().signatureError(), {
    message:
      /^build failed: hello\/handler\.go:3: handler must be func\(map.*, got func handler\(s string\) \(a, b int\)$/,
    detail: { file: 'hello/handler.go', line: 3, hint: /^write func handler/ },
  })
})
