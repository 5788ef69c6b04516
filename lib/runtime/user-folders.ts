/**
 * The folders of functions' users, made and removed by root or by a gateway that is in their groups. Owner: page runtime/isolation.
 *
 *   <socket folder>/u        0711  the gateway's: a way, and nothing to see
 *    └─ 20001                0700  the user's; for a gateway that is not root its own, 0770 with the user's group
 *        ├─ tmp                    likewise
 *        └─ w-1f0c.sock            of a compiled function
 */

import { chmodSync, chownSync } from 'node:fs'
import { dirname } from 'node:path'
import { OwnFolder } from '../files/own-folder.ts'
import { removeAsUser } from '../files/tool-user.ts'

/** Name of the folder of users' folders, short because paths of sockets must be. */
export const USERS_FOLDER = 'u'
const TEMPORARY = 'tmp'
const USER_NAME = /^\d{1,10}$/

/** The folder of one user, not made yet. @param sockets - full path of the gateway's folder for sockets */
export function userFolder(sockets: string, uid: number): OwnFolder {
  return new OwnFolder(sockets, USERS_FOLDER, String(uid))
}

/** @throws Error with a message for people, or of the file system */
export function makeUserFolder(folder: OwnFolder, uid: number): void {
  folder.make()
  chmodSync(dirname(folder.path), 0o711)
  const temporary = folder.below(TEMPORARY)
  if (isRoot()) {
    temporary.make()
    for (const { path } of [temporary, folder]) {
      chmodSync(path, 0o700)
      chownSync(path, uid, uid)
    }
    return
  }
  // Nobody but root gives files away: they stay the gateway's, and the user has them by its group.
  temporary.make()
  for (const { path } of [temporary, folder]) {
    chownSync(path, -1, uid)
    chmodSync(path, 0o770)
  }
}

/** Deletes all of them. @param sockets - folder of a gateway, this one's or one's that is gone */
export function removeUserFolders(sockets: OwnFolder): void {
  const users = sockets.below(USERS_FOLDER)
  for (const { name, stats } of users.list(USER_NAME)) {
    // The group was given with the folder; nothing is done as anybody else.
    if (stats.isDirectory() && stats.gid === Number(name)) removeAsUser(users.below(name), stats.gid)
  }
}

function isRoot(): boolean {
  return process.geteuid?.() === 0
}
