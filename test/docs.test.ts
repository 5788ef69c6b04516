import t from 'tap'
import { isAsShown, readDocBlocks, readSession } from './docs/blocks.ts'
import { findCheck, isInstalled } from './docs/checks.ts'
import { followPage } from './docs/follow-page.ts'
import { listPages } from './docs/pages.ts'
import { DocSession } from './docs/session.ts'

t.setTimeout(280_000)

// An index has nothing to run, and the reference is written from declarations; docs-*.test.ts have the rest.
const isGuide = (page: string): boolean => !/^docs\/(README.md$|from-|handlers\/|recipes\/|reference\/)/.test(page)
const guides = listPages().filter(isGuide)

for (const page of ['README.md', ...guides])
  t.test(`[docs.1, docs.2, docs.3] ${page} does what it says`, t => followPage(t, page))

t.test('[docs.1, docs.2] a page that is wrong is found out', async t => {
  const session = new DocSession()
  t.teardown(() => session.end())
  const follow = (language: string, text: string, marker: string | null = null) =>
    session.follow({ line: 1, language, marker, text, isTab: false })
  t.match((await follow('sh', 'curl http://127.0.0.1:1/')).failure, /exit code/)
  t.match((await follow('console', '$ echo a\nb')).failure, /shown: b\n\nprinted: a/)
  t.same(await follow('console', '$ X=7\n$ echo a$X b\na7...'), {})
  t.match((await follow('json', '{"a": }', 'not run: no reason')).failure, /JSON/)
  t.match((await follow('js', 'const = 1', 'not run: no reason')).failure, /const|expected/i)
  t.match((await follow('cobol', 'STOP RUN.')).failure, /nobody reads/)
  t.match((await follow('json', '{}')).failure, /which file/)
  t.same(await follow('json', '{}', 'not run: a part'), { notRun: 'a part' })
})

t.test('[docs.3] files of nginx and systemd are read by these, where they are installed', async t => {
  for (const [program, language, good, bad] of [
    ['nginx', 'nginx', 'server { listen 8080; }', 'server { listn 8080; }'],
    ['systemd-analyze', 'ini', '[Service]\nMemoryMax=2G', '[Service]\nMemoryMaxx=2G'],
  ] as const) {
    if (!isInstalled(program)) {
      t.comment(`${program} is not installed`)
      continue
    }
    t.equal(findCheck(language)!(good), null, language)
    t.type(findCheck(language)!(bad), 'string', language)
  }
})

t.test('[docs.2] a session is read line by line', async t => {
  t.same(readSession('$ a\n> b\nout\n\nmore\n$ c'), [
    { command: 'a\nb', output: 'out\n\nmore\n' },
    { command: 'c', output: '' },
  ])
  t.throws(() => readSession('out'), /begins with/)
  t.throws(() => readDocBlocks('```sh\nx'), /does not end/)
  t.ok(isAsShown('{"id":"1f","a":1}\n', '{"id":"...","a":1}'))
  t.notOk(isAsShown('{"id":"1f","a":12}', '{"id":"...","a":1}'))
})
