/** `npm run schemas`: writes the published JSON Schemas from the declarations. */

import { mkdirSync, writeFileSync } from 'node:fs'
import { toSchemaFiles } from './schemas.ts'

const folder = new URL('../../spec/schema/', import.meta.url)
mkdirSync(folder, { recursive: true })
for (const [name, text] of Object.entries(toSchemaFiles())) writeFileSync(new URL(name, folder), text)
