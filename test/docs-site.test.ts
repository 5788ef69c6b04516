import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkSite, toAnchor, toSidebar, toSiteLink, toSitePage } from '../build/docs-site.mjs'
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

t.test('[docs.11] the site is built, and its links lead somewhere', { skip }, async t => {
  const site = makeTree({})
  t.teardown(site.cleanup)
  const child = spawn(vitepress, ['build', 'docs', '--outDir', site.root], {
    cwd: ROOT,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = (await Promise.all([child.stdout.toArray(), child.stderr.toArray()])).flat().join('')
  t.ok(existsSync(site.path('first-api.html')), output)
  t.notMatch(output, /broken links/)
  t.match(readFileSync(site.path('index.html'), 'utf8'), `v${JSON.parse(readPage('package.json')).version}`)
})
