import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const root = fileURLToPath(new URL('..', import.meta.url))
const read = (file: string): string => readFileSync(join(root, file), 'utf8')

function filesBelow(folder: string, ending: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && entry.name.endsWith(ending))
    .map(entry => join(entry.parentPath, entry.name).slice(root.length))
    .filter(file => !file.includes('/fixtures/') && !file.includes('/schema/'))
    .sort()
}

/** The console is a program of its own, for browsers: it imports nothing of the gateway, and is tested page by page in one. */
const CONSOLE = 'console/'

/** Every module of the gateway, the command line and the console. */
function sourceFiles(): string[] {
  return ['lib', 'bin', 'conformance', 'console']
    .flatMap(folder => filesBelow(folder, '.ts'))
    .concat(filesBelow('console', '.tsx'))
}

/** Rows of the tables in spec/README.md: every `code` cell that is a path. */
function mapRows(): { modules: string[]; tests: Set<string>; pages: Set<string> } {
  const modules: string[] = []
  const tests = new Set<string>()
  const pages = new Set<string>()
  for (const line of read('spec/README.md').split('\n')) {
    if (!line.startsWith('|')) continue
    for (const [, cell] of line.matchAll(/`((?:lib|bin|conformance|console|test|spec)\/[^`]+)`/g)) {
      const path = cell as string
      if (path.startsWith('test/')) tests.add(path)
      else if (path.startsWith('spec/')) pages.add(path)
      else modules.push(path)
    }
  }
  return { modules, tests, pages }
}

const STATEMENT = /^- \*\*([a-z0-9/-]+)\.(\d+)\*\*/gm
const IDS = /\[((?:[a-z][a-z0-9-]*\/)*[a-z][a-z0-9-]*\.\d+(?:,\s*(?:[a-z][a-z0-9-]*\/)*[a-z][a-z0-9-]*\.\d+)*)\]/g

/** Its tests lie in one folder, whichever folder of the console the module is in. */
const consoleModules = new Map(
  [...filesBelow(CONSOLE, '.ts'), ...filesBelow(CONSOLE, '.tsx')].map(file => [
    basename(file).replace(/\.tsx?$/, ''),
    file,
  ]),
)

/** The module that a test carries the name of, `test/a/b.test.ts` or `test/a/b.subject.test.ts`; null when there is none. */
function moduleOf(test: string): string | null {
  const stem = test.slice('test/'.length, -'.test.ts'.length)
  const stems = [stem, stem.replace(/\.[^./]+$/, '')].map(path =>
    /^(?:bin|conformance)\//.test(path) ? path : `lib/${path}`,
  )
  const file = stems.map(path => `${path}.ts`).find(path => existsSync(join(root, path)))
  return file ?? consoleModules.get(basename(stem)) ?? null
}

t.test('every test and page has its place, and the map names nothing that is not there', async t => {
  const { modules, tests, pages } = mapRows()
  const twice = modules.filter((module, i) => modules.indexOf(module) !== i)
  t.same(twice, [], 'listed twice')
  t.same(
    [...modules, ...tests, ...pages].filter(file => !existsSync(join(root, file))),
    [],
    'listed and missing',
  )
  const testFiles = filesBelow('test', '.test.ts').filter(file => file !== 'test/spec-map.test.ts')
  t.same(
    testFiles.filter(file => moduleOf(file) === null && !tests.has(file)),
    [],
    'tests that carry the name of no module and are not listed',
  )
  const pageFiles = filesBelow('spec', '.md').filter(file => file !== 'spec/README.md')
  t.same(
    pageFiles.filter(file => !pages.has(file)),
    [],
    'pages that are not listed',
  )
})

/** Lines from which on a module has a test of its own. */
const OWN_TEST_LINES = 60

/** Modules that still lean on another one's test; this list may only get shorter. */
const WITHOUT_OWN_TEST = new Set(
  `
lib/runtime/lua-runtime.ts
lib/runtime/runtimes.ts
`
    .trim()
    .split('\n'),
)

/** Types alone: nothing of it runs. */
function isTypesOnly(file: string): boolean {
  return !/^(export )?(async )?(function|const|let|class|abstract class)\b/m.test(read(file))
}

t.test('a module that is not small has a test of its own', async t => {
  const tested = new Set(filesBelow('test', '.test.ts').map(moduleOf))
  const { modules } = mapRows()
  for (const file of sourceFiles()) {
    const isTested = tested.has(file) || modules.includes(file) || WITHOUT_OWN_TEST.has(file)
    if (isTested || file.startsWith(CONSOLE) || isTypesOnly(file)) continue
    const lines = read(file).split('\n').length - 1
    t.ok(lines <= OWN_TEST_LINES, `${file} has ${lines} lines and no test of its own: write test/...`)
  }
  t.same(
    [...WITHOUT_OWN_TEST].filter(file => !existsSync(join(root, file))),
    [],
    'listed and missing',
  )
})

t.test('what a module exports has a user in another file', async t => {
  const texts = new Map(sourceFiles().map(file => [file, read(file)]))
  const users = new Map([...texts, ...filesBelow('test', '.ts').map((file): [string, string] => [file, read(file)])])
  const words = new Map([...users].map(([file, text]) => [file, new Set(text.match(/\w+/g))]))
  for (const [file, text] of texts) {
    // The public names are used by others.
    if (file === 'lib/index.ts') continue
    // What stands in a text is the code of somebody else.
    const code = text.replace(/`(?:\\.|[^`\\])*`/gs, '``')
    for (const [, name] of code.matchAll(/^export (?:async )?(?:const|function|class|interface|type) (\w+)/gm)) {
      const isUsed = [...words].some(([other, used]) => other !== file && used.has(name as string))
      if (!isUsed) t.fail(`${file} exports ${name}, which no other file uses: leave out "export"`)
    }
  }
  t.ok(texts.size > 0)
})

t.test('no two modules have the same file name', async t => {
  const names = sourceFiles()
    .filter(file => !file.startsWith(CONSOLE))
    .map(file => basename(file))
  t.same(
    names.filter((name, i) => names.indexOf(name) !== i),
    [],
  )
})

t.test('every statement has a test and every test names statements', async t => {
  const statements = new Map<string, string>()
  for (const page of filesBelow('spec', '.md')) {
    const owner = page.slice('spec/'.length, -'.md'.length)
    for (const [, path, number] of read(page).matchAll(STATEMENT)) {
      const id = `${path}.${number}`
      if (path !== owner) t.fail(`${page}: statement ${id} does not carry the page's own path`)
      if (statements.has(id)) t.fail(`${page}: statement ${id} stands twice`)
      statements.set(id, page)
    }
  }
  const proven = new Set<string>()
  // The package brings the cases that test/runtimes/conformance.test.ts runs.
  for (const file of [...filesBelow('test', '.ts'), ...filesBelow('conformance', '-cases.ts')]) {
    if (file === 'test/spec-map.test.ts') continue
    const text = read(file)
    for (const [, list] of text.matchAll(IDS)) for (const id of (list as string).split(/,\s*/)) proven.add(id)
    if (!file.endsWith('.test.ts')) continue
    for (const [, title] of text.matchAll(/^t\.test\(\s*['"`]([^'"`\n]*)/gm)) {
      if (!/^\[(\$\{|[a-z0-9/-]+\.\d)/.test(title as string)) t.fail(`${file}: no statement is named by: ${title}`)
    }
  }
  t.same(
    [...statements.keys()].filter(id => !proven.has(id)),
    [],
    'statements without a test',
  )
  t.same(
    [...proven].filter(id => !statements.has(id)),
    [],
    'tests that name no statement',
  )
  t.ok(statements.size > 0)
})

const LOWER = ['core', 'files', 'config', 'observe', 'validation', 'router', 'discovery', 'runtime', 'dependencies']
const UPPER = ['invocation', 'edge', 'http', 'assets', 'scheduler', 'jobs', 'fleet', 'control']

/** Folder to the folders it may import from, besides itself; `lib` stands for the files right in it. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  core: [],
  files: ['core'],
  config: ['core'],
  observe: ['core', 'files'],
  validation: ['core', 'config'],
  router: ['core'],
  discovery: ['core', 'config'],
  runtime: ['core', 'files', 'config', 'observe'],
  dependencies: ['core', 'files', 'config', 'observe'],
  invocation: ['core', 'config', 'observe', 'validation', 'runtime', 'dependencies'],
  http: ['core', 'config', 'observe', 'validation', 'router', 'runtime', 'invocation'],
  edge: ['core', 'config', 'observe', 'runtime', 'invocation'],
  assets: ['core', 'config', 'router', 'http'],
  scheduler: ['core', 'files', 'config', 'observe', 'runtime', 'invocation'],
  jobs: ['core', 'files', 'config', 'observe', 'router', 'invocation', 'edge'],
  fleet: ['core', 'config', 'files', 'observe', 'runtime', 'jobs', 'scheduler'],
  control: [
    ...['core', 'files', 'config', 'observe', 'router', 'runtime', 'dependencies'],
    ...['invocation', 'http', 'jobs', 'scheduler', 'fleet'],
  ],
  gateway: [...LOWER, ...UPPER, 'processes'],
  processes: [...LOWER, ...UPPER, 'gateway'],
  conformance: ['core', 'runtime'],
  remote: [...LOWER, 'gateway'],
  console: [],
  lib: [...LOWER, ...UPPER, 'gateway', 'remote'],
  bin: ['core', 'files', 'config', 'observe', 'conformance'],
}

/** Of other folders the command line takes the public names, and helpers that hold nothing and start nothing. */
const PLAIN_HELPERS = new Set([
  'lib/index.ts',
  'lib/control/access.ts',
  'lib/control/call-fields.ts',
  'lib/invocation/forwarded-headers.ts',
  'lib/discovery/layouts.ts',
  'lib/runtime/binaries.ts',
  'lib/runtime/package-files.ts',
  'lib/gateway/own-user-plan.ts',
])

function folderOf(file: string): string {
  const [top, folder, ...rest] = file.split('/')
  return top === 'lib' && rest.length > 0 ? (folder as string) : (top as string)
}

/** Files that a file imports, types included: whoever reads it has to know those too. A schema that is published is no module. */
function importsOf(file: string): string[] {
  return [...read(file).matchAll(/from '(\.{1,2}\/[^']+)'|import\('(\.{1,2}\/[^']+)'\)/g)]
    .map(match => join(file, '..', (match[1] ?? match[2]) as string))
    .filter(target => !target.startsWith('spec/schema/'))
}

t.test('every import runs one way, and none in a circle, types included', async t => {
  const sources = sourceFiles()
  const imports = new Map(sources.map(file => [file, importsOf(file)]))
  t.same(
    [...new Set(sources.map(folderOf))].filter(folder => MAY_IMPORT[folder] === undefined),
    [],
    'without a row',
  )
  for (const [file, targets] of imports) {
    const folder = folderOf(file)
    for (const target of targets) {
      const other = folderOf(target)
      const isPlain = folder === 'bin' && PLAIN_HELPERS.has(target)
      if (other !== folder && !isPlain && MAY_IMPORT[folder]?.includes(other) !== true)
        t.fail(`${file} imports ${target}: ${folder} may not import ${other}`)
    }
  }
  const done = new Set<string>()
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) t.fail(`circle: ${[...path.slice(path.indexOf(file)), file].join(' -> ')}`)
    if (done.has(file) || path.includes(file)) return
    for (const target of imports.get(file) ?? []) visit(target, [...path, file])
    done.add(file)
  }
  for (const file of imports.keys()) visit(file, [])
  t.ok(imports.size > 0)
})

t.test('every path of this repository that a page names is there', async t => {
  const pages = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...filesBelow('spec', '.md')]
  let count = 0
  for (const page of pages) {
    for (const [, path] of read(page).matchAll(/`((?:lib|bin|test|spec|runtimes|examples)\/[\w./-]+\.[a-z]{2,4})`/g)) {
      count++
      // `lib/a/b.ts` stands for any file.
      if (!/\/a\/b\./.test(path as string) && !existsSync(join(root, path as string)))
        t.fail(`${page} names ${path}, which is not there`)
    }
    for (const [, target] of read(page).matchAll(/\]\(([^)#:\s]+)(?:#[^)]*)?\)/g)) {
      count++
      if (!existsSync(join(root, page, '..', target as string)))
        t.fail(`${page} links to ${target}, which is not there`)
    }
  }
  t.ok(count > 100, `${count} paths`)
})
