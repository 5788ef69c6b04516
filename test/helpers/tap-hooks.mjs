// Hooks of tap-loader.mjs: they run in the loader's thread, before those of tsx.
import { readFile } from 'node:fs/promises'

let tapUrl = ''

export function initialize(url) {
  tapUrl = url
}

export function resolve(specifier, context, next) {
  return specifier === 'tap' ? { url: tapUrl, format: 'module', shortCircuit: true } : next(specifier, context)
}

export async function load(url, context, next) {
  return url === tapUrl
    ? { format: 'module', source: await readFile(new URL(url)), shortCircuit: true }
    : next(url, context)
}
