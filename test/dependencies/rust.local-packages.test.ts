import { mkdirSync, writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import t from 'tap'
import { filesOfPackages } from '../../lib/dependencies/build.ts'
import { pathCratesOf } from '../../lib/dependencies/rust.ts'
import { makeTree } from '../helpers/tree.ts'

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
  const found = (folder: string) =>
    filesOfPackages(pathCratesOf(tree.path(folder))).map(path => relative(tree.root, path))
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
  t.equal(filesOfPackages(pathCratesOf(tree.path('fn'))).length, 5000)
})
