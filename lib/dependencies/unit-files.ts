/** Files of a unit's folder: how messages call them, and whether they are the gateway's to write. Owner: page dependencies/install. */

import { lstatSync } from 'node:fs'
import { join } from 'node:path'
import type { OwnFolder } from '../files/own-folder.ts'
import type { InstallUnit } from './install-step.ts'

/** `shop/cart/package.json`: below the functions root. */
export function labelOf({ label }: Pick<InstallUnit, 'label'>, name: string): string {
  return label === '.' ? name : `${label}/${name}`
}

/** True for what has the name, links that lead nowhere too. */
export function hasFile(folder: string, name: string): boolean {
  return lstatSync(join(folder, name), { throwIfNoEntry: false }) !== undefined
}

/** False for a link: what it leads to is not the gateway's to write. True for what is not there. */
export function isWritable(folder: OwnFolder, name: string): boolean {
  return lstatSync(folder.pathOf(name), { throwIfNoEntry: false })?.isFile() !== false
}
