/**
 * The user that a worker runs as, where the gateway keeps functions apart by users. Page: runtime/isolation.
 */

import { join } from 'node:path'

/** @typedef {{ uid: number, folder: string }} User - `folder` is its own: sockets, and temporary files in `tmp` */

/**
 * @param {Record<string, any>} header - of a `start`
 * @returns {User | null} null when it names none
 * @throws Error why it cannot be done
 */
export function parseUser({ user }) {
  if (user === undefined || user === null) return null
  const { uid, folder } = user
  if (!Number.isInteger(uid) || uid < 1 || typeof folder !== 'string')
    throw new Error('user must have uid, above 0, and folder')
  if (process.geteuid?.() !== 0) throw new Error(`a worker cannot run as user ${uid}: the daemon is not root`)
  return { uid, folder }
}

/**
 * @param {NodeJS.ProcessEnv} env
 * @param {User} user
 * @returns {NodeJS.ProcessEnv} with the user's own folders
 */
export function withUserFolders(env, { folder }) {
  const { TMP, TEMP, USER, LOGNAME, ...rest } = env
  const own = join(folder, 'tmp')
  return { ...rest, HOME: own, TMPDIR: own }
}

/**
 * Gives up root for good. What the process did before is the product's own; what follows may be a function's.
 * @param {User} user
 */
export function becomeUser(user) {
  const { uid } = user
  process.umask(0o077)
  process.setgroups?.([])
  process.setgid?.(uid)
  process.setuid?.(uid)
  const env = withUserFolders(process.env, user)
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name]
  Object.assign(process.env, env)
}
