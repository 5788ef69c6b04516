/** `npm run reference`: writes docs/reference from the declarations. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { toReferencePages } from './reference-pages.mjs'

const folder = new URL('../docs/reference/', import.meta.url)
mkdirSync(folder, { recursive: true })
for (const [name, text] of Object.entries(toReferencePages())) writeFileSync(new URL(name, folder), text)
