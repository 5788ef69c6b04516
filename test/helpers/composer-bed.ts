/** Installs of PHP functions by the real Composer, from packages in paths: no network is needed. */

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { FunctionVersion, Policy } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { Installer } from '../../lib/dependencies/install.ts'
import { createPhpStep, type PhpStepOptions } from '../../lib/dependencies/php.ts'
import { Builds } from '../../lib/dependencies/resolve.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { makeFn } from './fn.ts'
import { makeTree, type TreeEntry } from './tree.ts'

const PATH = process.env.PATH ?? ''
const PHP = findOnPath('php', PATH)
const COMPOSER = findOnPath('composer', PATH)

/** Why tests of Composer are left out; false when they are not. */
export const NO_COMPOSER: string | false =
  PHP === null || COMPOSER === null ? 'composer is not installed: apt-get install composer' : false

const library = (name: string, version: string, more: object = {}): TreeEntry => ({
  json: { name, version, autoload: { 'psr-4': { 'Acme\\': 'src/' } }, ...more },
})
export const shapeOf = (version: string) => `<?php namespace Acme; class Shape { const VERSION = '${version}'; }`

/** Two versions of one package, and one that needs the first of them. */
export const LIBRARIES: Readonly<Record<string, TreeEntry>> = {
  '_lib/shape1/composer.json': library('acme/shape', '1.2.0'),
  '_lib/shape1/src/Shape.php': shapeOf('1.2'),
  '_lib/shape2/composer.json': library('acme/shape', '2.0.0'),
  '_lib/shape2/src/Shape.php': shapeOf('2.0'),
  '_lib/frame/composer.json': library('acme/frame', '1.0.0', { require: { 'acme/shape': '^1' } }),
  '_lib/frame/src/Frame.php': "<?php namespace Acme; class Frame { const TEXT = 'frame of ' . Shape::VERSION; }",
}

/** A plugin that tells in the folder it works in that it ran, and what it sees. */
export const PLUGIN: Readonly<Record<string, TreeEntry>> = {
  '_lib/plug/composer.json': library('acme/plug', '1.0.0', {
    type: 'composer-plugin',
    require: { 'composer-plugin-api': '^2' },
    extra: { class: 'Acme\\Plug' },
  }),
  '_lib/plug/src/Plug.php': `<?php namespace Acme;
use Composer\\Composer;
use Composer\\IO\\IOInterface;
class Plug implements \\Composer\\Plugin\\PluginInterface {
  public function activate(Composer $composer, IOInterface $io): void {
    @mkdir('vendor');
    file_put_contents('vendor/plugged.txt', implode(' ', array_keys(getenv())));
  }
  public function deactivate(Composer $composer, IOInterface $io): void {}
  public function uninstall(Composer $composer, IOInterface $io): void {}
}`,
}

/** `composer.json` of a function one folder below the root. */
export function manifest(require: Record<string, string>, more: object = {}): TreeEntry {
  const repositories = [{ type: 'path', url: '../_lib/*' }, { 'packagist.org': false }]
  return { json: { repositories, require, ...more } }
}

export function makeComposerBed(
  t: Test,
  entries: Record<string, TreeEntry>,
  options: Partial<PhpStepOptions & { env: Record<string, string> }> = {},
) {
  const tree = makeTree({ ...LIBRARIES, ...entries })
  const seen = { told: [] as string[], notes: [] as string[] }
  /** How often Composer was looked for: once for each set that is filled. */
  let fills = 0
  const step = createPhpStep({
    functionsRoot: tree.root,
    isOn: true,
    isAhead: true,
    allowSources: false,
    composerProblem: 'composer is not on PATH',
    composerHint: 'install it (apt-get install composer)',
    onNote: text => seen.notes.push(text),
    ...options,
    findComposer: () => {
      fills += 1
      return options.findComposer === undefined ? COMPOSER : options.findComposer()
    },
  })
  const makeInstaller = () =>
    new Installer(step, { functionsRoot: tree.root, clock: systemClock, isPrivate: false, packsOf: () => [] })
  const makeBuilds = (installer: Installer) =>
    new Builds({
      isPrivate: false,
      clock: systemClock,
      temporaryFolder: new OwnFolder(tree.root, '.svc', 'build', 'tmp'),
      hostEnv: { PATH, HOME: tree.path('.home'), SECRET_TOKEN: 'secret', COMPOSER_AUTH: '{}', ...options.env },
      builders: [installer],
      waitMs: 0,
      findProgram: () => ({ path: PHP!, problem: null }),
      onBegin: (fn, action) => seen.told.push(`${action} ${fn.name}`),
      onEnd: () => {},
      onBuilt: ({ fn, made }) => seen.told.push(`${fn.name}: ${made.names.join(', ')}`),
      onFailure: () => {},
    })
  const installer = makeInstaller()
  const builds = makeBuilds(installer)
  t.teardown(async () => {
    await builds.close()
    tree.cleanup()
  })
  const fn = (name: string, policy: Partial<Policy> = {}, signature = '1'): FunctionVersion =>
    makeFn({
      runtime: 'php',
      name,
      key: `php/${name}@default`,
      fnDir: tree.path(name),
      entryPath: join(tree.path(name), 'handler.php'),
      entryFile: `${name}/handler.php`,
      signature,
      policy,
    })
  return {
    tree,
    installer,
    builds,
    seen,
    fn,
    fills: () => fills,
    read: (path: string) => readFileSync(tree.path(path), 'utf8'),
    json: (path: string) => JSON.parse(readFileSync(tree.path(path), 'utf8')),
    /** What an expression gives behind the function's autoloader. */
    print: (name: string, expression: string) =>
      execFileSync(PHP!, ['-r', `require 'vendor/autoload.php'; echo ${expression};`], {
        cwd: tree.path(name),
        encoding: 'utf8',
      }),
    failure: async (made: FunctionVersion): Promise<GatewayError> => {
      const error = await builds.prepare(made).then(
        () => null,
        (thrown: unknown) => thrown,
      )
      if (error instanceof GatewayError) return error
      throw error ?? new Error('nothing failed as it should')
    },
    /** A gateway that starts again. */
    again: () => {
      const fresh = makeBuilds(makeInstaller())
      t.teardown(() => fresh.close())
      return fresh
    },
  }
}
