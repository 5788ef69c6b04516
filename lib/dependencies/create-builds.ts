/** What makes functions ready, all languages: go and rust are built, packages of the others installed. Owner: §2.16, page dependencies/resolve. */

import { availableParallelism } from 'node:os'
import { OwnFolder } from '../files/own-folder.ts'
import type { Builder } from './build.ts'
import { CargoHome } from './cargo-home.ts'
import { createGoBuilder } from './go.ts'
import { Builds, type BuildsOptions } from './resolve.ts'
import { createRustBuilder } from './rust.ts'

export interface CompiledOptions extends Omit<BuildsOptions, 'builders' | 'temporaryFolder'> {
  functionsRoot: string
  goBuildTimeoutSeconds: number
  rustBuildTimeoutSeconds: number
  /** Full path of the folder with the sources of a runtime's worker. */
  workerFolder(runtime: 'go' | 'rust'): string
  /** What installs packages of the other languages. */
  installers?: readonly Builder[]
}

/** The builds and installs of a functions root. */
export function createBuilds(options: CompiledOptions): Builds {
  const { functionsRoot, isPrivate, goBuildTimeoutSeconds, rustBuildTimeoutSeconds, workerFolder, hostEnv } = options
  const folder = new OwnFolder(functionsRoot, '.svc', 'build')
  return new Builds({
    ...options,
    temporaryFolder: folder.below('tmp'),
    builders: [
      createGoBuilder({
        functionsRoot,
        isPrivate,
        readFile: options.readFile ?? null,
        workerFolder: workerFolder('go'),
        timeoutMs: goBuildTimeoutSeconds * 1000,
        concurrency: availableParallelism(),
        cgo: hostEnv.CGO_ENABLED === '1',
      }),
      createRustBuilder({
        functionsRoot,
        isPrivate,
        workerFolder: workerFolder('rust'),
        cargoHome: new CargoHome(folder, hostEnv),
        timeoutMs: rustBuildTimeoutSeconds * 1000,
      }),
      ...(options.installers ?? []),
    ],
  })
}
