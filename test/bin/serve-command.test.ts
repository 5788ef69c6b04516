import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { spawnSync } from 'node:child_process'
import t from 'tap'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'
import { addServe, createRoot, SERVE_NAMES } from '../../bin/serve-command.ts'
import { startProduct } from '../helpers/built.ts'
import { compileProduct } from '../helpers/product.mjs'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

const options = {
  output: createOutput(process.stdout, process.stderr, {}),
  version: '9.9.9',
  program: 'fngw',
  terminal: null,
}

t.test('[bin/dev.20] a command made alone is the one of the whole program', async t => {
  const whole = createProgram(options)
  for (const name of SERVE_NAMES) {
    const root = createRoot('9.9.9')
    addServe(root, name, options)
    const [alone, ...others] = root.commands
    const beside = whole.commands.find(command => command.name() === name)!
    t.same(others, [])
    t.equal(alone!.helpInformation(), beside.helpInformation(), name)
    t.equal(root.version(), whole.version())
  }
})

t.test('[package.9, bin/dev.20] the product is a few files, and whoever serves reads no other command', async t => {
  const { program, cleanup } = compileProduct()
  t.teardown(cleanup)
  const dist = join(program, '../..')
  const scripts = ['bin', 'lib', 'shared'].flatMap(folder =>
    readdirSync(join(dist, folder), { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.js'))
      .map(name => `${folder}/${name}`),
  )
  t.ok(scripts.length <= 40, `${scripts.length} files`)
  for (const name of scripts) {
    const map = JSON.parse(readFileSync(join(dist, `${name}.map`), 'utf8')) as { sources: string[] }
    t.ok(Array.isArray(map.sources), `${name} has a map`)
  }
  const version = () => spawnSync(process.execPath, [program, 'version'], { encoding: 'utf8' })
  t.equal(version().status, 0)
  const [others, ...more] = scripts.filter(name => name.startsWith('shared/program-'))
  t.same(more, [], 'every other command is in one file')
  rmSync(join(dist, others!))
  t.not(version().status, 0, 'which they need')
  const tree = makeTree({ 'hello.js': 'export const handler = () => ({ here: 1 })\n' })
  t.teardown(tree.cleanup)
  const running = await startProduct({ program, cleanup }, tree.root)
  t.equal(await (await fetch(`${running.url}/hello`)).text(), '{"here":1}')
  running.signal('SIGTERM')
  t.equal((await running.ended).code, 0)
})
