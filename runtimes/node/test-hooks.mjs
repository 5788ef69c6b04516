/** Preloaded into tests of functions: makes `fngw/test` and shared packs importable, wherever fngw is installed. Page: bin/test. */

import Module, { register } from 'node:module'
import { pathToFileURL } from 'node:url'
import { usePacks } from './loader.mjs'

const { FNGW_TEST_MODULE: file = '', FNGW_TEST_PACKS: packs = '[]' } = process.env
const internals = /** @type {any} */ (Module)
const resolve = internals._resolveFilename
internals._resolveFilename = (/** @type {string} */ request, /** @type {unknown[]} */ ...rest) =>
  request === 'fngw/test' ? file : resolve(request, ...rest)
register('./test-module.mjs', import.meta.url, { data: pathToFileURL(file).href })
usePacks(JSON.parse(packs))
