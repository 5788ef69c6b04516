/**
 * Module hooks of a worker, used only when a function needs them: shared packs for `import`, and a handler that must be
 * taken as an ES module whatever its folder's `package.json` says. Page: runtime/daemon.
 */

// This thread has an environment of its own. Where it was there before tsx, tsx must not keep compiled code in a shared folder.
process.env.TSX_DISABLE_CACHE = '1'

/** @type {{ parents: string[], moduleUrl: string | null }} `parents`: file URLs inside the packs, in order */
let options = { parents: [], moduleUrl: null }

/** @param {typeof options} data */
export function initialize(data) {
  options = data
}

/**
 * @param {string} specifier
 * @param {object} context
 * @param {(specifier: string, context: object) => Promise<{ url: string, format?: string }>} next
 * @returns {Promise<{ url: string, format?: string }>}
 */
export async function resolve(specifier, context, next) {
  const found = await resolveWithPacks(specifier, context, next)
  return options.moduleUrl !== null && found.url.split('?')[0] === options.moduleUrl
    ? { ...found, format: 'module' }
    : found
}

/** @type {typeof resolve} */
async function resolveWithPacks(specifier, context, next) {
  try {
    return await next(specifier, context)
  } catch (error) {
    // A function's own dependencies come first; a pack is asked for bare names that are found nowhere else.
    if (/^(\.|\/|[a-z]+:)/.test(specifier)) throw error
    for (const parentURL of options.parents) {
      try {
        return await next(specifier, { ...context, parentURL })
      } catch {
        // Not in this pack.
      }
    }
    throw error
  }
}
