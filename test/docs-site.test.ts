import { spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  checkSite,
  type HtmlNode,
  markCommands,
  SEARCH,
  toAnchor,
  toSidebar,
  toSiteLink,
  toSitePage,
  toSitePath,
} from '../build/docs-site.mjs'
import { listPages, ROOT, readPage } from './docs/pages.ts'
import { makeTree } from './helpers/tree.ts'

t.setTimeout(280_000)

const pages = listPages()

t.test('[docs.4] docs/README.md leads to every page, and each link leads to a file and a heading', t => {
  const listed = toSidebar(readPage('docs/README.md')).flatMap(({ items }) => items.map(({ link }) => link))
  const unlisted = pages.filter(page => page !== 'docs/README.md' && !listed.includes(toSiteLink('', page)))
  t.same(unlisted, [], 'pages that docs/README.md does not link to')
  for (const page of ['README.md', ...pages]) {
    for (const [, target = ''] of readPage(page).matchAll(/\]\(([^):\s]+)\)/g)) {
      const [path = '', anchor] = target.split('#')
      const file = path === '' ? page : join(page, '..', path)
      if (anchor === undefined) t.ok(existsSync(join(ROOT, file)), `${page}: ${target}`)
      else {
        const headings = [...readPage(file).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => toAnchor(heading))
        t.ok(headings.includes(anchor), `${page}: ${target}`)
      }
    }
  }
  t.end()
})

t.test('[docs.10] comments of a page become tabs and names of files', t => {
  const page = [
    '<!-- file: a.js -->',
    '```js',
    '1',
    '```',
    '',
    '<!-- tabs -->',
    '<!-- file: b.py -->',
    '```python',
    '# <!-- end of tabs -->',
    '```',
    '',
    '<!-- file: b.lua -->',
    '```lua',
    '```',
    '<!-- end of tabs -->',
  ].join('\n')
  t.equal(
    toSitePage(page),
    [
      '::: code-group',
      '```js [a.js]',
      '1',
      '```',
      ':::',
      '',
      '::: code-group',
      '```python [Python]',
      '# <!-- end of tabs -->',
      '```',
      '```lua [Lua]',
      '```',
      ':::',
    ].join('\n'),
  )
  t.equal(toSiteLink('docs/auth.md', '../spec/README.md#a'), '/spec/index.html#a')
  t.equal(toSiteLink('docs/reference/errors.md', '../auth.md'), '/auth.html')
  t.equal(toSiteLink('spec/docs.md', 'https://example.com/a.md'), 'https://example.com/a.md')
  t.equal(toAnchor("The daemon's `log`, twice"), 'the-daemons-log-twice')
  t.end()
})

t.test('[docs.10] the copy button of a session takes the commands', t => {
  const text = (value: string) => ({ type: 'text', value, children: [] })
  const line = (...parts: string[]) => ({
    type: 'element',
    properties: { class: 'line' },
    children: parts.map(part => ({ type: 'element', properties: {}, children: [text(part)] })),
  })
  const lines = [line('$ ', 'a \\'), line('> b'), line('$'), line('output'), line('$ c')]
  const code = { type: 'element', children: lines.flatMap((one, i) => (i === 0 ? [one] : [text('\n'), one])) }
  const read = (node: HtmlNode, isCopy: boolean): string =>
    isCopy && String(node.properties?.class).includes('vp-copy-ignore')
      ? ''
      : (node.value ?? node.children.map(child => read(child, isCopy)).join(''))
  const before = read(code, false)
  markCommands(code)
  t.equal(read(code, false), before, 'the page shows everything')
  t.equal(read(code, true), 'a \\\nb\nc')
  t.end()
})

t.test('[docs.11] a broken link, a missing heading and a request to another host are found in a site', t => {
  const site = makeTree({
    'index.html':
      '<h1 id="top">a</h1><a href="./b.html#top">b</a><a class="x" href="/c.html">c</a><a href="https://example.com">d</a>',
    'b.html': '<a href="/#nowhere">a</a><img alt="" src="https://example.com/a.png">',
    'assets/a.css': "@font-face { src: url('//example.com/a.woff2') }",
  })
  t.teardown(site.cleanup)
  const faults = checkSite(site.root).sort()
  t.equal(faults.length, 5)
  for (const [i, part] of [
    'a.css',
    'b.html: /#nowhere',
    'b.html: requests',
    'index.html: ./b.html#top',
    'index.html: /c.html',
  ].entries())
    t.match(faults[i], part)
  t.end()
})

const vitepress = join(ROOT, 'docs/node_modules/.bin/vitepress')
const skip = existsSync(vitepress) ? false : 'VitePress is not installed (npm ci --prefix docs)'

/** Questions of new users as they type them, and where a search for each leads; one of several pages is enough. */
const QUESTIONS: readonly (readonly [words: string, ...pages: string[]])[] = [
  ['return a 404', 'handlers/response', 'handlers/errors'],
  ['set a cookie', 'handlers/cookies'],
  ['read the query string', 'handlers/event'],
  ['json body', 'handlers/event'],
  ['stream a response', 'handlers/streaming'],
  ['upload files', 'handlers/uploads', 'uploads'],
  ['upload a file', 'handlers/uploads', 'uploads'],
  ['limit body size', 'handlers/uploads', 'first-api'],
  ['how do I protect a route', 'auth'],
  ['set an environment variable', 'handlers/environment'],
  ['where do secrets go', 'secrets'],
  ['install a package', 'dependencies'],
  ['run something every night', 'schedules'],
  ['cron', 'schedules'],
  ['retry a job', 'jobs'],
  ['call another function', 'handlers'],
  ['share code between functions', 'routing'],
  ['version a function', 'routing'],
  ['nginx https', 'nginx'],
  ['deploy with docker', 'container'],
  ['see the logs', 'production', 'observability'],
  ['debug with breakpoints', 'debugging'],
  ['write a test', 'testing'],
  ['cors', 'routing'],
  ['change the timeout', 'configuration', 'troubleshooting'],
  ['embed in express', 'embedding'],
  ['redirect to another url', 'handlers/response'],
  ['validate the request body', 'validation'],
  ['serve static files', 'recipes/static-site'],
  ['prometheus metrics', 'observability'],
  ['env var', 'handlers/environment'],
  ['websocket', 'handlers/streaming', 'recipes/live-updates'],
]

t.test('[docs.11, docs.21] the site is built', { skip }, async t => {
  const site = makeTree({})
  t.teardown(site.cleanup)
  const child = spawn(vitepress, ['build', 'docs', '--outDir', site.root], {
    cwd: ROOT,
    env: { ...process.env, DOCS_REPOSITORY: 'https://git.example.com/fngw' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = (await Promise.all([child.stdout.toArray(), child.stderr.toArray()])).flat().join('')
  t.ok(existsSync(site.path('first-api.html')), output)
  t.notMatch(output, /broken links/)
  t.match(readFileSync(site.path('index.html'), 'utf8'), `v${JSON.parse(readPage('package.json')).version}`)

  t.test('each page has a link to its source', async t => {
    for (const page of pages) {
      const html = readFileSync(site.path(toSitePath(page).replace(/\.md$/, '.html')), 'utf8')
      t.ok(html.includes(`"https://git.example.com/fngw/edit/main/${page}"`), page)
    }
  })
  t.test('a search for a question has its page among the first three', async t => {
    const folder = site.path('assets/chunks')
    const name = readdirSync(folder).find(name => name.startsWith('@localSearchIndex'))!
    const { default: json } = (await import(join(folder, name))) as { default: string }
    const { default: MiniSearch } = await import(join(ROOT, 'docs/node_modules/minisearch/dist/es/index.js'))
    // As VitePress searches, with the options of the site.
    const index = MiniSearch.loadJSON(json, {
      fields: ['title', 'titles', 'text'],
      storeFields: ['title', 'titles'],
      ...SEARCH.options,
      searchOptions: { boost: { title: 4, text: 2, titles: 1 }, ...SEARCH.searchOptions },
    })
    for (const [words, ...expected] of QUESTIONS) {
      const found: string[] = index
        .search(words)
        .slice(0, 3)
        .map(({ id }: { id: string }) => id.replace(/^\/|\.html.*$/g, ''))
      t.ok(
        expected.some(page => found.includes(page)),
        `${words}: ${found.join(', ')}`,
      )
    }
  })
})
