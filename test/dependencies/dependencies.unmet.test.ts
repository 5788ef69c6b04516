import t from 'tap'
import type { PackageManifest } from '../../lib/core/catalog.ts'
import { findUnmet } from '../../lib/dependencies/dependencies.ts'
import { discoverTree } from '../helpers/discovery.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'

function unmet(entries: Record<string, TreeEntry>, manifests: PackageManifest[]) {
  const tree = makeTree(entries)
  try {
    return findUnmet(manifests, tree.path('root'))
  } finally {
    tree.cleanup()
  }
}

const python = (folder: string): PackageManifest => ({ runtime: 'python', folder })
const node = (folder: string): PackageManifest => ({ runtime: 'node', folder })
const php = (folder: string): PackageManifest => ({ runtime: 'php', folder })

t.test('[dependencies/shared-packs.4] one warning for each runtime, with files and packages', async t => {
  const warnings = unmet(
    {
      'root/a/requirements.txt':
        '# tools\n\nFlask[async]>=2 ; python_version > "3"\n  requests\n-r other.txt\n--index-url x\n',
      'root/b/requirements.txt': 'requests==1\n',
      'root/empty/requirements.txt': '# nothing\n',
      'root/requirements.txt': 'numpy',
      'root/j/package.json': {
        json: { dependencies: { left: '1', '@scope/right': '1', here: '1' }, devDependencies: { tap: '1' } },
      },
      'root/node_modules/here/index.js': '',
      'root/p/composer.json': { json: { require: { php: '>=8', 'ext-json': '*', 'monolog/monolog': '^3' } } },
    },
    [python('a'), python('a'), python('b'), python('empty'), python(''), node('j'), php('p'), python('gone')],
  )
  t.match(warnings, [
    {
      code: 'PACKAGES_MISSING',
      path: 'a/requirements.txt',
      message: 'a/requirements.txt, b/requirements.txt, requirements.txt: not installed: Flask, numpy, requests',
      hint: /pip install -r requirements\.txt -t \.deps/,
    },
    { path: 'j/package.json', message: 'j/package.json: not installed: @scope/right, left', hint: /npm install/ },
    { path: 'p/composer.json', message: 'p/composer.json: not installed: monolog/monolog', hint: /composer install/ },
  ])
  t.equal(warnings.length, 3)
})

t.test('[dependencies/shared-packs.4] what names nothing or cannot be read is no warning', async t => {
  const files: Record<string, TreeEntry> = {
    'root/a/package.json': { json: { type: 'module' } },
    'root/b/package.json': '{',
    'root/c/package.json': '[]',
    'root/d/package.json': { json: { dependencies: ['x'] } },
    'root/e/composer.json': { json: { require: { php: '*' } } },
    'root/f/requirements.txt/folder': '',
    'root/g/requirements.txt': `x\n${'#'.repeat(300 * 1024)}`,
    'root/h/package.json': { json: { dependencies: { up: '*' } } },
    'node_modules/up/package.json': '{}',
  }
  t.same(unmet(files, [node('a'), node('b'), node('c'), node('d'), php('e'), python('f'), python('g'), node('h')]), [])
  t.same(unmet({}, []), [])
})

t.test('[dependencies/shared-packs.4] long lists are cut', async t => {
  const entries: Record<string, TreeEntry> = {}
  const manifests: PackageManifest[] = []
  for (let i = 0; i < 250; i++) {
    entries[`root/${i}/requirements.txt`] = `p${i}\n`
    manifests.push(python(String(i)))
  }
  t.equal(
    unmet(entries, manifests)[0]?.message,
    '0/requirements.txt, 1/requirements.txt, 2/requirements.txt, 3/requirements.txt, 4/requirements.txt and 195 more: not installed: p0, p1, p10, p100, p101 and 195 more',
  )
})

t.test('[dependencies/shared-packs.4] discovery names the functions without installed packages', async t => {
  const { manifests } = discoverTree({
    'a/handler.py': '',
    'a/requirements.txt': '',
    'b/handler.py': '',
    'b/requirements.txt': '',
    'b/.deps/x.py': '',
    'c/x.js': '',
    'c/y.js': '',
    'c/package.json': '',
    'd/index.php': '',
    'd/composer.json': '',
    'd/vendor/autoload.php': '',
    'e/requirements.txt': '',
    'e/handler.js': '',
    'g/main.lua': '',
    'g/package.json': '',
  })
  t.same([...new Set(manifests.map(({ runtime, folder }) => `${runtime} ${folder}`))].sort(), ['node c', 'python a'])
})
