import { symlinkSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { BuildTools } from '../../lib/dependencies/run-tool.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { findNodeImports, mayImportPackages, type NodeInferBackend } from '../../lib/dependencies/node-imports.ts'
import { runTool } from '../../lib/dependencies/run-tool.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'

const signal = new AbortController().signal
const tools: BuildTools = {
  signal,
  run: run =>
    runTool({ ...run, env: { PATH: process.env.PATH ?? '' }, timeoutMs: 60_000, isPlain: false, signal }, systemClock),
}
const search = (root: string, entry: string, backend: NodeInferBackend = 'native') => {
  const script = runtimeFile('node/find-imports.mjs')
  return findNodeImports(
    { script, functionsRoot: root, folder: join(root, 'f'), entries: [join(root, 'f', entry)], backend },
    tools,
  )
}

const HANDLER_TS = `import type { A } from 'types-only'
import { unused } from 'unused-type'
import _ from 'lodash/fp'
import { x } from "@scope/pkg/sub"
import './lib/helper.js'
import '../outside.js'
import fs from 'node:fs'
/* import 'in-comment' */
const s = "import 'in-string'"
export const handler = async (): Promise<unknown> => [_, x, fs, s, await import('dynamic')]
`
const HELPER = `const a = require('helper-pkg'), b = require(process.argv[2])
try { require('-g') } catch {}
require('./gone'); require('~/alias'); require('https://x/y'); require('../node_modules/own')
`

t.test(
  '[dependencies/node.1] imports are found by a parse: types, comments and texts name nothing, helpers count',
  async t => {
    const root = t.testdir({
      'outside.js': "require('outside')",
      f: {
        'handler.ts': HANDLER_TS,
        lib: { 'helper.js': HELPER },
        node_modules: { own: { 'index.js': "require('inner')" } },
      },
    })
    const found = await search(root, 'handler.ts')
    t.same(found.packages, [
      { name: 'lodash', file: 'f/handler.ts', line: 3 },
      { name: '@scope/pkg', file: 'f/handler.ts', line: 4 },
      { name: 'dynamic', file: 'f/handler.ts', line: 10 },
      { name: 'helper-pkg', file: 'f/lib/helper.js', line: 1 },
    ])
    t.same(found.unresolved, [{ name: 'https://x/y', file: 'f/lib/helper.js', line: 3 }])
  },
)

t.test('[dependencies/node.1] the packages detective and require-analyzer find what they can', async t => {
  const es5 =
    "var a = require('lodash'), fs = require('fs'); var b = require(process.argv[9]); exports.handler = function () { return a }"
  const root = t.testdir({ f: { 'handler.ts': HANDLER_TS, lib: { 'helper.js': HELPER }, 'old.js': es5 } })
  const names = async (entry: string, backend: NodeInferBackend) =>
    (await search(root, entry, backend)).packages.map(({ name }) => name)
  t.same(await names('handler.ts', 'detective'), ['lodash', '@scope/pkg', 'dynamic', 'helper-pkg'])
  t.same(await names('old.js', 'require-analyzer'), ['lodash'])
  const missed = await search(root, 'handler.ts', 'require-analyzer')
  t.match(missed.problem, /^require-analyzer did not find lodash\/fp/, 'it reads no newer language, and that is told')
})

t.test('[dependencies/node.1] require-analyzer does not run the function', async t => {
  const root = t.testdir({
    f: { 'old.js': "var x = require('a' + 1); require('fs').writeFileSync(__dirname + '/ran', '')" },
  })
  t.same((await search(root, 'old.js', 'require-analyzer')).packages, [])
  const { existsSync } = await import('node:fs')
  t.equal(existsSync(join(root, 'f/ran')), false)
})

t.test('[dependencies/node.1] hostile sources: broken ones, a loop, a link outwards, ten thousand imports', async t => {
  const many = Array.from({ length: 10_000 }, (_, at) => `require('p${at}')`).join('\n')
  const root = t.testdir({
    secret: { 'x.js': "require('leaked')" },
    f: {
      'broken.js': "require('before'); function (",
      'a.js': "require('./b'); require('one')",
      'b.js': "require('./a'); require('two')",
      'many.js': many,
      'link.js': "require('./out/x.js'); require('three')",
      'empty.js': '',
    },
  })
  symlinkSync(join(root, 'secret'), join(root, 'f/out'))
  t.same((await search(root, 'broken.js')).packages, [], 'the worker tells what is wrong')
  t.same((await search(root, 'a.js')).packages.map(({ name }) => name).sort(), ['one', 'two'])
  t.equal((await search(root, 'many.js')).packages.length, 200)
  t.same(
    (await search(root, 'link.js')).packages.map(({ name }) => name),
    ['three'],
  )
  t.same((await search(root, 'empty.js')).packages, [])
})

t.test(
  '[dependencies/node.1] a backend that is not installed, or does not answer, is told with what to do',
  async t => {
    const root = t.testdir({ f: { 'handler.js': '' } })
    const answer = (output: string, code: number): BuildTools => ({
      signal,
      run: async () => ({ code, output, timedOut: false, problem: null }),
    })
    const request = {
      script: 's',
      functionsRoot: root,
      folder: join(root, 'f'),
      entries: [],
      backend: 'detective' as const,
    }
    await t.rejects(
      findNodeImports(request, answer('\nfngw-imports {"found":[],"problem":"x","isMissing":true}\n', 1)),
      { message: 'install failed: FN_NODE_INFER_BACKEND is detective, and the package detective is not installed' },
    )
    for (const output of ['', 'boom', 'fngw-imports {', 'fngw-imports []'])
      await t.rejects(
        findNodeImports(request, answer(output, 1)),
        { message: /imports could not be read with detective/ },
        output,
      )
  },
)

t.test('[dependencies/node.1] most functions are known to import no package without a parse', async t => {
  const root = t.testdir({
    'plain.js': "const fs = require('node:fs'); import('./h.js'); // require(x)",
    'h.js': "export { readFile } from 'fs/promises'",
    'deep.ts': "import './d/i'",
    d: { 'i.ts': "export * from 'pkg'" },
    'pack.js': "require('pack')",
    'commented.js': "require(/* why */ 'pkg')",
  })
  const may = (name: string) => mayImportPackages(root, [join(root, name)], other => other === 'pack')
  t.equal(may('plain.js'), false)
  t.equal(may('pack.js'), false)
  t.equal(may('deep.ts'), true)
  t.equal(may('commented.js'), true)
  t.equal(may('gone.js'), false)
})

const OPTIONAL = [
  ["try { require('x') } catch {}", true],
  ["async function f() { try { await import('x') } catch {} }", true],
  ["import('x').catch(() => null)", true],
  ["require('x')", false],
  ["if (process.env.NEVER) require('x')", false],
  ["try { require('x') } catch {}; require('x')", false],
  ["try { const f = () => require('x') } catch {}", false],
] as const

t.test('[dependencies/node.19] an import whose failure the code handles is optional', async t => {
  const files = OPTIONAL.flatMap(([text], at) => [
    [`o${at}.js`, text],
    [`o${at}.ts`, `const n: number = 1\n${text}`],
  ])
  const root = t.testdir({ f: Object.fromEntries(files) })
  for (const [at, [text, isOptional]] of OPTIONAL.entries()) {
    for (const entry of [`o${at}.js`, `o${at}.ts`]) {
      const { packages, optional } = await search(root, entry)
      t.same([packages.map(({ name }) => name), optional], isOptional ? [[], ['x']] : [['x'], []], `${entry}: ${text}`)
    }
  }
})
