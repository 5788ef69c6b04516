import { Command } from 'commander'
import t from 'tap'
import { addDebugFlags, type DebugFlags, takeFolder, toDebugOptions } from '../../bin/debug-flags.ts'
import { runCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

/** The folder and the options of a command line. */
function read(...words: string[]) {
  let dir: string | undefined
  const command = new Command().argument('[dir]').action((typed: string | undefined) => {
    dir = takeFolder(command.opts<DebugFlags>(), typed)
  })
  addDebugFlags(command, true)
  const flags = command.parse(words, { from: 'user' }).opts<DebugFlags>()
  return { dir, debug: toDebugOptions(flags) }
}

t.test('[runtime/debuggers.9] reads the flags, with a port or without, before the folder or behind it', async t => {
  const node = { port: null, waits: false }
  const cases: [words: string[], expected: object][] = [
    [['functions'], { dir: 'functions', debug: null }],
    [['--inspect'], { dir: undefined, debug: { node, fn: null } }],
    [['--inspect', 'functions'], { dir: 'functions', debug: { node, fn: null } }],
    [['functions', '--inspect'], { dir: 'functions', debug: { node, fn: null } }],
    [['--inspect=9300', 'functions'], { dir: 'functions', debug: { node: { ...node, port: 9300 }, fn: null } }],
    [['--inspect-brk', '--inspect=9300'], { dir: undefined, debug: { node: { port: 9300, waits: true }, fn: null } }],
    [['--inspect-brk', '9300'], { dir: undefined, debug: { node: { port: 9300, waits: true }, fn: null } }],
    [
      ['--debug-py', '--inspect-fn', 'users/[id]'],
      { dir: undefined, debug: { python: { port: null }, fn: 'users/[id]' } },
    ],
    [['--debug-php=9004', 'a'], { dir: 'a', debug: { php: { port: 9004 }, fn: null } }],
  ]
  for (const [words, expected] of cases) t.same(read(...words), expected, words.join(' '))
  t.throws(() => read('--inspect=70000'), {
    message: /^--inspect must be followed by a port from 1 to 65535, or by nothing, got "70000"$/,
  })
  t.throws(() => read('--debug-py', 'a', 'b'), { message: /excess|too many|port/ })
  t.throws(() => read('--inspect-fn', 'hello'), { message: /add --inspect, --inspect-brk, --debug-py or --debug-php/ })
})

t.test('[runtime/debuggers.8] fngw run refuses them, and dev at a public address and in a container', async t => {
  const { root, cleanup } = makeTree({ 'hello.mjs': 'export const handler = () => 1' })
  t.teardown(cleanup)
  const cases: [words: string[], message: RegExp][] = [
    [['run', root, '--inspect'], /handlers are debugged in development only: use fngw dev/],
    // Nothing is installed for it either.
    [['run', root, '--debug-py'], /^(?!.*debugpy).*use fngw dev/s],
    [['dev', root, '--inspect', '--host', '0.0.0.0'], /--host must be a loopback address where handlers are debugged/],
    [['dev', root, '--debug-py', '--runtime-image', 'fngw'], /add --native/],
  ]
  for (const [words, message] of cases) {
    const { status, stderr } = runCli(words, { cwd: root, env: { FN_ENV: 'development' } })
    t.equal(status, 2)
    t.match(stderr, message)
  }
})
