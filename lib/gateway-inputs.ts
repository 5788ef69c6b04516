/** What a gateway is made from: its options, the project's files and this process's environment, read and checked. Owner: §1. */

import type { OuterEnv } from './config/function-env.ts'
import { readSecrets } from './config/secret-file.ts'
import { checkIsolation, checkRuntimeSockets, readPowers } from './config/setting-checks.ts'
import { checkRoot, createOuterEnvReader, loadSettings } from './config/project-file.ts'
import { type ResolvedSettings, resolveSettings } from './config/settings.ts'
import { type Clock, systemClock } from './core/clock.ts'
import { type GatewayOptions, SettingsError } from './gateway-types.ts'

/** What a gateway is given beside its settings. */
export interface Host {
  clock: Clock
  /** True reads the tree only. */
  inspect: boolean
  /** Environment of this process. */
  hostEnv: Readonly<Record<string, string | undefined>>
  /** Folder of the project's env files; null when none are read. */
  envDir: string | null
  /** What functions get from outside their root. */
  outerEnv: () => OuterEnv
}

interface GatewayInputs {
  resolved: ResolvedSettings
  host: Host
}

/** Settings alone, with their problems: nothing is checked against this machine. */
export function readSettings(options: GatewayOptions): ResolvedSettings & { envDir: string | null } {
  const { env = {}, project = null, cwd = process.cwd(), flags = {}, defaults, ...rest } = options
  const { inspect, clock, beforeStart, ...given } = rest
  const inputs = { options: given, env, cwd, flags, defaults: { hotReload: false, ...defaults } }
  return project === null
    ? { ...resolveSettings(inputs), envDir: null }
    : loadSettings({ ...inputs, explicit: project.explicit })
}

/** @throws SettingsError with every problem at once */
export function readGatewayInputs(options: GatewayOptions): GatewayInputs {
  const { env = {}, inspect = false, clock = systemClock } = options
  const { envDir, ...written } = readSettings(options)
  const resolved = checkRuntimeSockets(readSecrets(written))
  const problems = [...resolved.problems, ...checkRoot(resolved), ...checkIsolation(resolved, readPowers())]
  if (problems.length > 0) throw new SettingsError(problems)
  const outerEnv = createOuterEnvReader(envDir, env)
  return { resolved, host: { clock, inspect, hostEnv: { ...process.env, ...env }, envDir, outerEnv } }
}
