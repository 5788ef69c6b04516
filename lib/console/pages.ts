/** The pages of the console in the order of the menu. Owner: page console/console. */

interface PageEntry {
  /** Below `/console`. */
  readonly path: string
  readonly title: string
  /** What it answers, in words. */
  readonly question: string
  /** Pressed after `g`. */
  readonly key: string
}

export const PAGES: readonly PageEntry[] = [
  { path: '', title: 'Overview', question: 'Is it healthy, and what changed?', key: 'o' },
  { path: 'functions', title: 'Functions', question: 'What is here, what is slow or failing?', key: 'f' },
  { path: 'routes', title: 'Routes', question: 'Who answers this URL?', key: 'r' },
  { path: 'try', title: 'Try it', question: 'What does it answer?', key: 't' },
  { path: 'logs', title: 'Logs', question: 'What happened?', key: 'l' },
  { path: 'jobs', title: 'Jobs', question: 'What runs, and what ran?', key: 'j' },
  { path: 'scheduler', title: 'Schedules', question: 'What will run, and when?', key: 's' },
  { path: 'packs', title: 'Packs and installs', question: 'Which packages are there?', key: 'p' },
  { path: 'health', title: 'Health', question: 'What is it made of?', key: 'h' },
  { path: 'settings', title: 'Settings', question: 'How is it set up?', key: 'e' },
]
