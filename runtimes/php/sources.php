<?php
/**
 * Which files are the user's own: not this runtime, not installed packages, not libraries of the system. A package that is
 * linked into `vendor` has its files elsewhere, and those count as the user's. Page: runtimes/php (10, 27).
 */

declare(strict_types=1);

namespace Fngw;

final class Sources
{
    /** Functions root with its last slash, as it was given and as PHP names files in it. */
    private string $givenRoot;
    private string $root;
    /** @var list<string> folders of PHP's include path, such as /usr/share/php/ */
    private array $libraries = [];
    /** @var array<string, true> files that were told */
    private array $told = [];
    /** Files included at the last look. */
    private int $seen = 0;

    /** @param string $root functions root: a `vendor` in its own path says nothing */
    public function __construct(string $root)
    {
        $this->givenRoot = \rtrim($root, '/') . '/';
        $this->root = \rtrim((string) (\realpath($root) ?: $root), '/') . '/';
        foreach (\explode(\PATH_SEPARATOR, (string) \get_include_path()) as $folder) {
            if (\str_starts_with($folder, '/') && !\str_starts_with($this->root, \rtrim($folder, '/') . '/')) {
                $this->libraries[] = \rtrim($folder, '/') . '/';
            }
        }
    }

    /** @param string $file as PHP names it: its real path, with ` : eval()'d code` for what was evaluated */
    public function isUsers(string $file): bool
    {
        if (\str_starts_with($file, __DIR__ . '/')) {
            return false;
        }
        foreach ($this->libraries as $folder) {
            if (\str_starts_with($file, $folder)) {
                return false;
            }
        }
        $path = \str_starts_with($file, $this->root) ? \substr($file, \strlen($this->root) - 1) : $file;
        return !\str_contains($path, '/vendor/') && !\str_contains($path, '/.svc/');
    }

    /** A file as its author knows it: below the functions root. */
    public function shorten(string $file): string
    {
        foreach ([$this->root, $this->givenRoot] as $root) {
            if (\str_starts_with($file, $root)) {
                return \substr($file, \strlen($root));
            }
        }
        return $file;
    }

    /** @return list<string> loaded files that were not told before and whose change asks for a new worker */
    public function takeNew(): array
    {
        $included = \get_included_files();
        $this->seen = \count($included);
        $files = [];
        foreach ($included as $file) {
            // Composer's own index changes when packages do.
            $isIndex = \str_contains($file, '/vendor/composer/') || \str_ends_with($file, '/vendor/autoload.php');
            if (!isset($this->told[$file]) && ($isIndex || $this->isUsers($file))) {
                $this->told[$file] = true;
                $files[] = $file;
            }
        }
        return $files;
    }

    public function hasGrown(): bool
    {
        return \count(\get_included_files()) !== $this->seen;
    }
}
