/** What installs packages: the step of each language, with its settings. Owner: §2.16, page dependencies/install. */

import type { Settings } from './config/settings.ts'
import type { Clock } from './core/clock.ts'
import { Installer, type InstallStep } from './dependencies/install.ts'
import type { SharedPacks } from './dependencies/shared-packs.ts'

interface InstallPartsOptions {
  settings: Settings
  clock: Clock
  /** Environment of this process. */
  hostEnv: Readonly<Record<string, string | undefined>>
  packs: SharedPacks
}

export function createInstallers(options: InstallPartsOptions): Installer[] {
  const { settings, clock, packs } = options
  const { functionsRoot, isolation } = settings
  const isPrivate = isolation === 'user'
  return createSteps(options).map(
    step => new Installer(step, { functionsRoot, clock, isPrivate, packsOf: fn => packs.require(fn) }),
  )
}

/** A language's step is made of the settings that are its own; each file says what they are. */
function createSteps(_options: InstallPartsOptions): InstallStep[] {
  return []
}
