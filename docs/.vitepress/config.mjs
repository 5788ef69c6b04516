import { cpSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { checkSite, isSearched, markCommands, SEARCH, toAnchor, toSidebar, toSiteLink, toSitePage, toSitePath } from '../../build/docs-site.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const { version, description, repository } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
/** Web address of the repository, without a slash at the end. A clone does not know it: the release sets it. */
const source = process.env.DOCS_REPOSITORY ?? repository?.url.replace(/^git\+|\.git$/g, '') ?? null
/** Files other than pages that pages link to. */
const linkedFiles = new Set()

function toLink(token, page) {
  const link = toSiteLink(page, decodeURI(token.attrGet('href')))
  const isFile = link.startsWith('/') && !/\.html(#|$)/.test(link)
  token.attrSet('href', isFile ? posix.relative(posix.dirname(`/${toSitePath(page)}`), link) : link)
  if (!isFile) return
  linkedFiles.add(link.slice(1))
  // VitePress takes other links for pages.
  token.attrSet('target', '_blank')
}

export default defineConfig({
  title: 'fngw',
  description,
  // Pages link to the specification, the examples and the changelog.
  srcDir: '..',
  srcExclude: ['node_modules/**', 'dist/**', 'test/**', 'lib/**', 'console/**', 'build/**', 'runtimes/**', 'README.md'],
  rewrites: toSitePath,
  // buildEnd checks links, anchors too.
  ignoreDeadLinks: true,
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  themeConfig: {
    sidebar: toSidebar(readFileSync(join(ROOT, 'docs/README.md'), 'utf8')),
    nav: [
      { text: 'Start', link: '/first-api' },
      { text: 'Reference', link: '/reference/settings' },
      { text: `v${version}`, link: '/CHANGELOG' },
    ],
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        miniSearch: SEARCH,
        _render: (text, env, markdown) => (isSearched(env.relativePath) ? markdown.render(text, env) : ''),
      },
    },
    ...(source !== null && { editLink: { pattern: `${source}/edit/main/:path`, text: 'Edit this page' } }),
  },
  markdown: {
    // Pages have no HTML: `<name>` in a text is text.
    html: false,
    anchor: { slugify: toAnchor },
    codeTransformers: [
      {
        code(node) {
          if (this.options.lang === 'console') markCommands(node)
        },
      },
    ],
    config: markdown => {
      markdown.core.ruler.before('normalize', 'fngw', state => {
        state.src = toSitePage(state.src)
      })
      markdown.core.ruler.push('fngw-links', ({ tokens, env }) => {
        const page = (env.realPath ?? env.path).slice(ROOT.length)
        for (const token of tokens.flatMap(({ children }) => children ?? [])) {
          if (token.type === 'link_open') toLink(token, page)
        }
      })
    },
  },
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  buildEnd: ({ outDir }) => {
    for (const file of linkedFiles) {
      if (!statSync(join(ROOT, file), { throwIfNoEntry: false })?.isFile()) continue
      mkdirSync(dirname(join(outDir, file)), { recursive: true })
      cpSync(join(ROOT, file), join(outDir, file))
    }
    const faults = checkSite(outDir)
    if (faults.length > 0) throw new Error(`the site has broken links:\n${faults.join('\n')}`)
  },
})
