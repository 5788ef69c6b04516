/** The pages of the console in the order of the menu. Owner: page console/console. */

interface PageEntry {
  /** Below `/console`. */
  readonly path: string
  readonly title: string
  /** The question that the page answers. */
  readonly question: string
  /** Pressed after `g`. */
  readonly key: string
}

export const PAGES: readonly PageEntry[] = [
  { path: '', title: 'Overview', question: 'Is it healthy, and what changed?', key: 'o' },
  {
    path: 'functions',
    title: 'Functions',
    question: 'Which functions exist, and which are slow or failing?',
    key: 'f',
  },
  { path: 'routes', title: 'Routes', question: 'Which function serves this URL?', key: 'r' },
  { path: 'try', title: 'Try it', question: 'What does it return?', key: 't' },
  { path: 'logs', title: 'Logs', question: 'What happened?', key: 'l' },
  { path: 'jobs', title: 'Jobs', question: 'What runs, and what ran?', key: 'j' },
  { path: 'scheduler', title: 'Schedules', question: 'What will run, and when?', key: 's' },
  { path: 'packs', title: 'Packs and installs', question: 'Which packages are installed?', key: 'p' },
  { path: 'health', title: 'Health', question: 'Which processes run, and how are they?', key: 'h' },
  { path: 'fleet', title: 'Fleet', question: 'Which gateways share the work?', key: 'i' },
  { path: 'settings', title: 'Settings', question: 'Which settings are in force?', key: 'e' },
]
