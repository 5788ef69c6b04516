import { Writable } from 'node:stream'
import { CommanderError } from 'commander'
import t from 'tap'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'
import { makeTree } from '../helpers/tree.ts'

const handler = 'export const handler = () => 1\n'

/** Runs a command in this process; what it prints, and what it threw. */
async function run(...args: string[]) {
  const texts = ['', '']
  const [stdout, stderr] = texts.map(
    (_, i) =>
      new Writable({
        write(chunk, _encoding, done) {
          texts[i] += String(chunk)
          done()
        },
      }) as unknown as NodeJS.WriteStream,
  )
  const program = createProgram({
    output: createOutput(stdout!, stderr!, {}),
    version: '9.9.9',
    program: 'fngw',
    terminal: null,
  })
  const quiet = { writeOut: () => {}, writeErr: () => {} }
  for (const command of [program, ...program.commands]) command.configureOutput(quiet).exitOverride()
  const error = await program.parseAsync(args, { from: 'user' }).then(
    () => null,
    (thrown: unknown) => thrown,
  )
  const exitCode = process.exitCode ?? 0
  process.exitCode = 0
  return { stdout: texts[0]!, stderr: texts[1]!, error, exitCode }
}

t.test('[bin/routes.1, bin/routes.2, bin/dev.15] routes and explain read the tree as dev and run serve it', async t => {
  const { root, cleanup } = makeTree({ 'a.js': handler, 'g/handler.go': 'package main\n', 'get.post.x.js': '' })
  t.teardown(cleanup)
  const routes = await run('routes', root)
  t.match(routes.stdout, /GET +\/a +node +a\.js\n/)
  t.notMatch(routes.stdout, /handler\.go/)
  t.match(routes.stderr, /warning RUNTIME_OFF: go is not enabled .*g\/handler\.go\n {2}fix: .*fngw\.json/)
  t.match(routes.stderr, /warning [A-Z_]+: get\.post\.x\.js.*\n {2}fix: /)
  t.match((await run('routes', root, '--runtimes', 'node,go')).stdout, /GET +\/g +go +g\/handler\.go\n/)
  const json = JSON.parse((await run('routes', root, '--json')).stdout)
  t.same(Object.keys(json), ['mapped_routes', 'mapped_route_conflicts', 'warnings', 'ignored'])
  const found = await run('explain', 'get', '/a', root)
  t.match([found.exitCode, found.stdout], [0, /^answered by a\.js/])
  const lost = await run('explain', 'GET', '/b', root, '--json')
  t.match([lost.exitCode, JSON.parse(lost.stdout)], [1, { winner: null, beside: null, refusal: { status: 404 } }])
  t.match((await run('explain', 'GET', '/a', root, '--runtimes', 'python')).exitCode, 1, 'a flag narrows it')
})

t.test('[bin/dev.5, bin/dev.9] wrong usage throws, the version is a result', async t => {
  t.equal((await run('version')).stdout, '9.9.9\n')
  for (const args of [['nonsense'], ['dev', '--nope'], ['explain'], ['run', '--open']])
    t.type((await run(...args)).error, CommanderError, args.join(' '))
  t.match((await run('init')).error, { exitCode: 2, message: /name is missing/ })
  t.match((await run('routes', '/nowhere/at/all')).error, { name: 'SettingsError' })
})

t.test('[bin/invoke.6, bin/dev.9] what follows a command is its own, and a folder is for --local', async t => {
  const { root, cleanup } = makeTree({ 'a.js': handler, 'v/handler.js': handler, 'v/two/handler.js': handler })
  t.teardown(cleanup)
  t.match((await run('invoke', 'a', root)).error, { exitCode: 2, message: /is for --local/ })
  const versioned = await run('invoke', 'v', root, '--local', '--version', 'two', '--json', '--runtimes', 'node')
  t.match(JSON.parse(versioned.stdout), { status: 200, route: '/v@two', body: '1' })
  t.match((await run('invoke', 'v', '--url', 'nonsense')).error, { exitCode: 2, message: /^--url must be/ })
})
