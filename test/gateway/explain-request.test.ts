import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

const handler = 'export const handler = () => 1\n'
const TREE: Record<string, TreeEntry> = {
  'fn.config.json': {
    json: { home: { route: '/docs' }, assets: { directory: 'public', not_found_handling: '404' } },
  },
  'index.js': handler,
  'docs/index.js': handler,
  'both.js': handler,
  'public/both/index.html': '<p>',
  'public/style.css': '',
  'shop/fn.config.json': { json: { home: { redirect: '/both' } } },
}

async function explainer(t: { teardown: (fn: () => unknown) => void }, files: Record<string, TreeEntry>) {
  const { root, cleanup } = makeTree(files)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root, inspect: true })
  t.teardown(() => gateway.close())
  return (method: string, path: string) => {
    const { winner, beside } = gateway.explain(method, path)
    return [winner?.file ?? null, beside?.kind ?? null, beside?.text ?? '']
  }
}

t.test('[bin/routes.2] what answers beside the routes is named', async t => {
  const explain = await explainer(t, TREE)
  const cases: [method: string, path: string, file: string | null, kind: string | null, text?: RegExp][] = [
    ['GET', '/docs', 'docs/index.js', null],
    ['GET', '/', 'index.js', 'home', /the home of \/: route \/docs, by fn\.config\.json/],
    ['POST', '/', null, null],
    ['GET', '/shop', null, 'home', /redirect \/both, by shop\/fn\.config\.json/],
    ['GET', '/style.css', null, 'asset', /a file of the assets directory .*public$/],
    ['GET', '/both', 'both.js', 'asset'],
    ['HEAD', '/style.css', null, 'asset'],
    ['POST', '/style.css', null, null],
    ['GET', '/openapi.json', null, 'document'],
    ['GET', '/_fn/health', null, 'control'],
    ['POST', '/console', null, 'control'],
    ['GET', '/nope', null, null],
    ['GET', '/docs/?a=1#b', 'docs/index.js', null],
    ['GET', '//docs/.', 'docs/index.js', null],
    ['GET', '//shop/', null, 'home'],
    ['GET', '//style.css?v=2', null, 'asset'],
    ['GET', '/x/../_fn%2Fhealth', null, 'control'],
    ['GET', '/../style.css', null, null],
    ['GET', '/%zz', null, null],
  ]
  for (const [method, path, file, kind, text] of cases) {
    const [foundFile, foundKind, foundText] = explain(method, path)
    t.same([foundFile, foundKind], [file, kind], `${method} ${path}`)
    if (text !== undefined) t.match(foundText, text)
  }
})

t.test('[bin/routes.2] a single-page application answers what nobody else does; functions may come first', async t => {
  const assets = { directory: 'public', not_found_handling: 'single-page-application', run_worker_first: true }
  const explain = await explainer(t, { ...TREE, 'fn.config.json': { json: { assets } } })
  t.match(explain('GET', '/nope'), [null, 'asset', /index\.html/])
  t.same(explain('GET', '/both').slice(0, 2), ['both.js', null])
})

t.test('[bin/routes.2] the documentation page is named where it is served', async t => {
  const explain = await explainer(t, { '[...all].js': handler })
  t.match(explain('GET', '/docs'), ['[...all].js', 'document', 'the documentation page'])
})

t.test('[bin/routes.2] the answer is the one a request gets', async t => {
  const { root, cleanup } = makeTree(TREE)
  t.teardown(cleanup)
  const gateway = await createGateway({ functionsRoot: root })
  t.teardown(() => gateway.close())
  for (const path of ['/', '/docs', '/shop', '/style.css', '/both', '/openapi.json', '/nope', '/shop/x']) {
    const { winner, beside } = gateway.explain('GET', path)
    const { status } = await gateway.inject(path)
    t.equal(status !== 404, winner !== null || beside !== null, `${path} ${status}`)
  }
})
