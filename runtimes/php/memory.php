<?php
/** Memory for long bodies that the process keeps. Page: runtimes/php. */

declare(strict_types=1);

namespace Fngw;

/**
 * PHP's allocator takes memory in chunks of 2 MiB. One that is empty goes back to the system at once, and the next long string
 * gets pages that the system has to fill with zeros first: 300 to 800 of them for a body of 1 MiB. A chunk that something
 * small lies in stays.
 */
final class Anchors
{
    /** Chunks that are kept: for a body, its base64 text, and what is between two calls. */
    private const CHUNKS = 2;
    /** Fills a chunk of 2 MiB whose first page is the allocator's, so that each one is put into a chunk of its own. */
    private const WHOLE_BYTES = 511 * 4096 - 256;
    /** What stays of it: more than a page's half, which would lie among small things elsewhere. */
    private const KEPT_BYTES = 4000;

    /** @var list<string> */
    private array $kept = [];

    /** The first time it keeps chunks, later nothing. */
    public function drop(): void
    {
        if ($this->kept !== []) {
            return;
        }
        // A read that finds less than half of what it made room for is cut in place.
        $source = \fopen('php://memory', 'r+');
        \fwrite($source, \str_repeat('.', self::KEPT_BYTES));
        while (\count($this->kept) < self::CHUNKS) {
            \rewind($source);
            $this->kept[] = (string) \fread($source, self::WHOLE_BYTES);
        }
        \fclose($source);
    }
}
