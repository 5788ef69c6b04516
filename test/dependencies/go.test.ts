import { cpSync, readdirSync, readFileSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { makeBuilds, missingToolchain } from '../helpers/compiled.ts'
import { startDaemon } from '../helpers/worker-client.ts'

const missing = missingToolchain('go')
if (missing !== null) {
  t.plan(0, missing)
  process.exit(0)
}

// A first build on a busy machine takes a while.
t.setTimeout(180_000)

const HANDLER =
  'func handler(event map[string]any) map[string]any {\n\treturn map[string]any{"status": 200, "body": text()}\n}\n'

t.test(
  '[dependencies/resolve.8, runtimes/go.2, runtimes/go.3, runtimes/go.4] failures name file and line of the user and say what to write',
  async t => {
    const good = 'func handler(event map[string]any) map[string]any { return nil }\n'
    const bed = makeBuilds({
      'undefined/handler.go':
        'package undefined\n\n// a comment\nfunc handler(event map[string]any) map[string]any {\n\treturn nope\n}\n',
      'helper/handler.go': `package helper\n\n${good}`,
      'helper/_util.go': 'package other\n\nfunc broken() int { return "text" }\n',
      'syntax/handler.go': 'package syntax\n\nfunc handler(\n',
      'many/handler.go': `package many\n\n${good}${Array.from({ length: 12 }, (_, i) => `var v${i} = nope${i}\n`).join('')}`,
      'signature/handler.go':
        '/* package not */ package signature\n\nfunc handler(name string) string { return name }\n',
      'none/handler.go':
        'package none\n\n/*\nfunc handler(event map[string]any) map[string]any { return nil }\n*/\nvar text = `\nfunc handler() {}\n`\n',
      'main/handler.go': `package main\n\n${good}\nfunc main() {}\n`,
      'named/handler.go': `package named\n\n${good}`,
      'module/handler.go': `package module\n\nimport _ "example.com/not/there"\n\n${good}`,
    })
    t.teardown(() => bed.close())
    const cases: [string, RegExp, string, number, string | null][] = [
      ['undefined', /^build failed: undefined\/handler\.go:5:9: undefined: nope$/, 'undefined/handler.go', 5, null],
      ['helper', /^build failed: helper\/_util\.go:3:28: cannot use "text"/, 'helper/_util.go', 3, null],
      ['syntax', /^build failed: syntax\/handler\.go:\d+:\d+: syntax error/, 'syntax/handler.go', 4, null],
      [
        'signature',
        /signature\/handler\.go:3: handler must be func\(map\[string\]any\) map\[string\]any .* got func handler\(name string\) string$/,
        'signature/handler.go',
        3,
        'write func handler',
      ],
      [
        'none',
        /^none\/handler\.go: no package-level function handler or Handler$/,
        'none/handler.go',
        1,
        'write func handler',
      ],
      ['main', /^main\/handler\.go:5: func main must not be there/, 'main/handler.go', 5, 'remove func main'],
      ['module', /^build failed: module\/handler\.go:3:8: /, 'module/handler.go', 3, 'go mod init'],
    ]
    for (const [name, message, file, line, hint] of cases) {
      const error = await bed.failure(`${name}/handler.go`)
      t.match(error, { code: 'LOAD_FAILED', status: 500, message }, name)
      t.match(error.detail, { file, ...(name !== 'syntax' && { line }) }, name)
      if (hint !== null) t.match(error.detail?.hint, hint, name)
      t.notMatch(error.message, /\.go-build|fngw_/, name)
    }
    const many = await bed.failure('many/handler.go')
    t.ok(many.message.split('\n').length <= 9)
    t.match(many.message, /^build failed: many\/handler\.go:4:10: undefined: nope0\n/)
    const named = bed.fn('named/handler.go', { handler: 'process' })
    await t.rejects(bed.builds.prepare(named), { message: 'named/handler.go: no package-level function process' })
    t.equal(bed.failures.length, cases.length + 2)
  },
)

t.test(
  '[dependencies/resolve.4, dependencies/resolve.5, dependencies/resolve.12, runtimes/go.1, runtimes/go.5] what is built, from what, and when again',
  async t => {
    const bed = makeBuilds({
      'hello/handler.go': `package hello\n\nimport _ "embed"\n\n//go:embed text.txt\nvar embedded string\n\n${HANDLER}`,
      'hello/_helper.go':
        'package helper\n\nimport "example.com/hello/inner"\n\nfunc text() string { return embedded + inner.Text() + plain }\n',
      'hello/plain.go': 'package x\n\nvar plain = "p"\n',
      'hello/get.other.go': 'package other\n\nfunc handler(event map[string]any) map[string]any { return nil }\n',
      'hello/main.go': 'package main\n\nfunc main() { broken }\n',
      'hello/handler_test.go': 'package hello\n\nfunc handler() {}\n',
      'hello/text.txt': 'e',
      'hello/inner/inner.go': 'package inner\n\nfunc Text() string { return "i" }\n',
      'hello/go.mod': 'module example.com/hello\n\ngo 1.17\n',
      'go.mod': 'module example.com/root\n\ngo 99.0\n',
      'go.work': 'go 99.0\n',
    })
    t.teardown(() => bed.close())
    const daemon = await startDaemon('go', { root: bed.tree.root })
    t.teardown(() => daemon.close())
    const before = readdirSync(bed.tree.path('hello')).sort()
    const call = async (file: string): Promise<string> => {
      const fn = bed.fn(file)
      const binary = (await bed.builds.prepare(fn))!
      const worker = await daemon.worker({ dir: fn.fnDir, entry: fn.entryPath, binary })
      const { text } = await worker.call()
      await worker.close()
      return text
    }
    t.equal(await call('hello/handler.go'), 'eip', 'helpers, siblings, packages below and embedded files are in it')
    t.same(readdirSync(bed.tree.path('hello')).sort(), ['.go-build', ...before], 'nothing else is written there')
    t.same(readdirSync(bed.tree.path('hello/.go-build')).sort(), ['.gitignore', 'handler'])
    t.equal(bed.built.length, 1)
    const [program] = readdirSync(bed.tree.path('hello/.go-build/handler/bin'))
    t.notOk(
      readFileSync(bed.tree.path(`hello/.go-build/handler/bin/${program}`)).includes(bed.tree.root),
      'no path of this machine',
    )

    bed.tree.write({ 'hello/get.other.go': 'package other\n\nbroken\n', 'hello/data.json': '{}' })
    t.equal(await call('hello/handler.go'), 'eip')
    t.equal(bed.built.length, 1, 'other routes and data are not in it')

    const changes: [string, string, string][] = [
      ['hello/text.txt', 'E', 'Eip'],
      ['hello/inner/inner.go', 'package inner\n\nfunc Text() string { return "I" }\n', 'EIp'],
      ['hello/plain.go', 'package x\n\nvar plain = "P"\n', 'EIP'],
    ]
    for (const [file, text, answer] of changes) {
      bed.tree.write({ [file]: text })
      t.equal(await call('hello/handler.go'), answer, file)
    }
    t.equal(bed.built.length, 4)
    t.equal(readdirSync(bed.tree.path('hello/.go-build/handler/bin')).length, 2, 'the newest two are kept')

    const copy = makeBuilds({})
    t.teardown(() => copy.close())
    cpSync(bed.tree.path('hello'), copy.tree.path('moved'), { recursive: true })
    for (const name of ['handler.go', 'plain.go', 'go.mod']) utimesSync(join(copy.tree.path('moved'), name), 1, 1)
    await copy.builds.prepare(copy.fn('moved/handler.go'))
    t.same(copy.built, [], 'a copy elsewhere with other times is the same content')
  },
)

t.test(
  '[runtimes/go.1, runtimes/go.2, runtimes/go.3] file routes of one folder are programs of their own; every signature is served',
  async t => {
    const results = {
      'users/get.items.go': 'func handler(event map[string]any) (map[string]any, error) {',
      'users/[id].go': 'func Handler(event map[string]any) any {',
      'users/post.go': 'func handler(event any) any {',
      'users/put.go': 'func handler(ctx context.Context, event map[string]any) (any, error) {',
    }
    const entries = Object.entries(results).map(([file, head]) => {
      const result = `map[string]any{"status": 200, "body": shared("${file}")}`
      const more = head.includes('error)') ? ', nil' : ''
      const imports = head.includes('context') ? 'import "context"\n\n' : ''
      return [file, `package users\n\n${imports}${head}\n\treturn ${result}${more}\n}\n`] as const
    })
    const bed = makeBuilds({
      ...Object.fromEntries(entries),
      'users/_shared.go': 'package users\n\nfunc shared(text string) string { return "shared " + text }\n',
    })
    t.teardown(() => bed.close())
    const daemon = await startDaemon('go', { root: bed.tree.root })
    t.teardown(() => daemon.close())
    await Promise.all(
      Object.keys(results).map(async file => {
        const fn = bed.fn(file, {}, { kind: 'file' })
        const binary = (await bed.builds.prepare(fn))!
        const worker = await daemon.worker({ dir: fn.fnDir, entry: fn.entryPath, binary })
        t.equal((await worker.call()).text, `shared ${file}`)
        await worker.close()
      }),
    )
    t.equal(readdirSync(bed.tree.path('users/.go-build')).filter(name => name !== '.gitignore').length, 4)
  },
)

t.test('[dependencies/resolve.9] GO_BUILD_TIMEOUT_S ends a build', async t => {
  const bed = makeBuilds({ 'slow/handler.go': `package slow\n\n${HANDLER}` }, { goBuildTimeoutSeconds: 0.001 })
  t.teardown(() => bed.close())
  t.match(
    (await bed.failure('slow/handler.go')).message,
    /^build failed: go \w+ took longer than 0\.001 s and was stopped$/,
  )
})
