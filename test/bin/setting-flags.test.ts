import { Command } from 'commander'
import t from 'tap'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'
import { addSettingFlags, toFlags } from '../../bin/setting-flags.ts'

const output = createOutput(process.stdout, process.stderr, {})
const PROGRAM = createProgram({ output, version: '0', program: 'fngw', terminal: null })

/** What `fngw <name> --help` prints. */
function helpOf(name: string): string {
  return PROGRAM.commands.find(command => command.name() === name)!.helpInformation()
}

t.test('[bin/dev.3, bin/dev.13] help shows what matters to the command, with defaults and variables', async t => {
  const help = (name: string) => helpOf(name).replace(/\s+/g, ' ')
  const dev = help('dev')
  t.match(dev, /-p, --port <number> TCP port to listen on; 0 takes a free one\. \(default 8080; FN_PORT\)/)
  t.match(dev, /--log-format <format> .*\(default text; FN_LOG_FORMAT\)/)
  t.match(dev, /--no-hot-reload .* --open /)
  t.match(dev, / --runtime-image <tag> .*\(FN_RUNTIME_IMAGE\).*--native /)
  t.notMatch(dev, / --hot-reload| --outside/, 'what holds anyway, or is for nobody to type, is not shown')
  const run = help('run')
  t.match(run, /--hot-reload .*--log-format <format> .*\(default json; FN_LOG_FORMAT\)/)
  t.notMatch(run, /--open|--runtime-image/)
  for (const name of ['routes', 'explain']) {
    t.match(help(name), /--namespace-depth <count> .*\(default 3; FN_NAMESPACE_DEPTH\).*--runtimes/)
    t.notMatch(help(name), /--port|--log-|--worker-memory/, name)
  }
  t.match(help('init'), /--template.*api.*spa.*--method.*--yes/)
})

t.test('[bin/dev.3] only what was typed is a flag', async t => {
  const command = addSettingFlags(new Command('x'), { defaults: {}, shown: null }).exitOverride()
  command.parse(['-p', '1', '--no-hot-reload', '--log-format', 'text', '--config', 'a.json'], { from: 'user' })
  t.same(toFlags(command), { port: '1', hotReload: false, logFormat: 'text' })
  const nothing = addSettingFlags(new Command('x'), { defaults: { hotReload: true }, shown: [] })
  nothing.parse([], { from: 'user' })
  t.same(toFlags(nothing), {}, 'so that environment and file come through')
})

t.test('[bin/dev.3] a flag that is not shown is taken all the same', async t => {
  const command = addSettingFlags(new Command('x'), { defaults: {}, shown: ['forceUrl'] })
  t.match(command.helpInformation(), /--force-url/)
  t.notMatch(command.helpInformation(), /--port/)
  command.parse(['--port', '9'], { from: 'user' })
  t.same(toFlags(command), { port: '9' })
})
