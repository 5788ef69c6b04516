import { mkdirSync, writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import t from 'tap'
import { filesOfGoReplacements, filesOfPathCrates } from '../../lib/dependencies/build.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[dependencies/resolve.15] folders that a go.mod puts in the place of modules', async t => {
  const tree = makeTree({
    'left/left.go': '',
    'left/go.mod': '',
    'left/data/words.txt': '',
    'left/.git/config': '',
    'deep/a/a.go': '',
    'fn/inner/inner.go': '',
  })
  t.teardown(tree.cleanup)
  const found = (mod: string) => filesOfGoReplacements(tree.path('fn'), mod).map(path => relative(tree.root, path))
  const left = ['left/data/words.txt', 'left/go.mod', 'left/left.go']
  for (const [mod, files] of [
    ['', []],
    ['replace example.com/left => ../left', left],
    ['replace example.com/left v1.0.0 => "../left"\n', left],
    [
      `replace (\n\texample.com/a => ${tree.path('deep/a')} // near\n\texample.com/i => ./inner\n)\n`,
      ['deep/a/a.go', 'fn/inner/inner.go'],
    ],
    ['replace example.com/left => example.com/other v1.2.0', []],
    ['// replace example.com/left => ../left', []],
    ['replace example.com/left => ../gone', []],
    ['replace example.com/left => ../left/left.go', []],
    ['replace x => ../left\nreplace y => ../left', left],
  ] as const)
    t.same(found(mod), files, mod)
})

t.test('[dependencies/resolve.15] crates that are named by path, and those that these name', async t => {
  const crate = (name: string, rest = '') => `[package]\nname = "${name}"\nversion = "1.0.0"\n${rest}`
  const tree = makeTree({
    'fn/handler.rs': '',
    'fn/Cargo.toml': crate(
      'fn',
      `[lib]\npath = "handler.rs"\n[dependencies]\nleft = { version = "1", path = '../left' }\n`,
    ),
    'left/Cargo.toml': crate('left', '[dependencies.right]\npath = "../right"\n# lost = { path = "../lost" }\n'),
    'left/src/lib.rs': '',
    'left/target/debug/big': '',
    'right/Cargo.toml': crate('right', '[dependencies]\nleft = { path = "../left" }\nfn = { path = "../fn" }\n'),
    'right/src/lib.rs': '',
    'lost/src/lib.rs': '',
  })
  t.teardown(tree.cleanup)
  const found = (folder: string) => filesOfPathCrates(tree.path(folder)).map(path => relative(tree.root, path))
  t.same(found('fn'), ['left/Cargo.toml', 'left/src/lib.rs', 'right/Cargo.toml', 'right/src/lib.rs'])
  t.same(found('lost'), [])
})

t.test('[dependencies/resolve.15] a folder that is no package does not make it slow', async t => {
  const tree = makeTree({ 'fn/Cargo.toml': '[dependencies]\nall = { path = ".." }\n' })
  t.teardown(tree.cleanup)
  for (let at = 0; at < 60; at++) {
    mkdirSync(tree.path(`many${at}`))
    for (let file = 0; file < 100; file++) writeFileSync(tree.path(`many${at}/${file}`), '')
  }
  t.equal(filesOfPathCrates(tree.path('fn')).length, 5000)
})
