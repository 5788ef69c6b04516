<?php
/** What a handler or its file threw, as the fields of an `error` frame. Page: runtime/wire-protocol (14). */

declare(strict_types=1);

namespace Fngw;

final class Failure
{
    /** Longest message, bytes: with every character escaped it still fits its frame. */
    private const MAX_MESSAGE_BYTES = 4 * 1024;
    /** Longest stack, bytes. */
    private const MAX_STACK_BYTES = 8 * 1024;
    /** Bytes of a source line that are shown. */
    private const MAX_FRAME_BYTES = 160;
    /** Errors that end the script and cannot be caught. */
    private const FATAL = \E_ERROR | \E_CORE_ERROR | \E_COMPILE_ERROR | \E_PARSE | \E_USER_ERROR | \E_RECOVERABLE_ERROR;

    private Sources $sources;

    public function __construct(Sources $sources)
    {
        $this->sources = $sources;
    }

    /** @return array<string, mixed> */
    public function describe(\Throwable $error, string $code): array
    {
        $fields = ['code' => $code, 'message' => self::message($error)] + $this->place($error);
        return $fields + self::hintFor($fields['message']) + ['stack' => $this->stack($error)];
    }

    /** @return array<string, mixed> fields for a function that cannot be loaded */
    public function describeLoad(\Throwable $error): array
    {
        if ($error instanceof LoadError) {
            return self::toRefusal($error);
        }
        $isSyntax = $error instanceof \ParseError;
        $fields = $this->atLoad(self::message($error), $error->getFile(), $error->getLine(), $isSyntax);
        return $isSyntax ? $fields : $fields + ['stack' => $this->stack($error)];
    }

    /** @return array<string, mixed> */
    private static function toRefusal(LoadError $error): array
    {
        $fields = ['code' => 'load', 'message' => self::message($error), 'file' => $error->getFile()];
        if ($error->getLine() > 0) {
            $fields['line'] = $error->getLine();
        }
        return $error->hint === '' ? $fields : $fields + ['hint' => $error->hint];
    }

    /** @return array<string, mixed> with the place in the message: it is the first thing to know, and a log shows no more */
    private function atLoad(string $message, string $file, int $line, bool $isSyntax = false): array
    {
        $place = $this->sources->shorten($file) . ":$line";
        $text = \preg_replace("/^syntax error, | \\(include_path='[^']*'\\)$/", '', $message);
        $fields = ['code' => 'load', 'file' => $file, 'line' => $line] + self::hintFor($text);
        if (!$isSyntax) {
            return ['message' => "cannot load $place: $text"] + $fields;
        }
        return ['message' => "syntax error in $place: $text", 'stack' => self::toFrame($file, $line)] + $fields;
    }

    /** The line of an error and the one before it, numbered. */
    private static function toFrame(string $file, int $line): string
    {
        $first = \max(1, $line - 1);
        $frame = "    at $file:$line";
        foreach (\array_slice(@\file($file, \FILE_IGNORE_NEW_LINES) ?: [], $first - 1, $line - $first + 1) as $at => $text) {
            $frame .= \sprintf("\n%5d | %s", $first + $at, \substr(\strtr($text, "\t", ' '), 0, self::MAX_FRAME_BYTES));
        }
        return $frame;
    }

    /** @return array{hint?: string} what to do about a class that is not there */
    private static function hintFor(string $message): array
    {
        if (\preg_match('/^(?:Uncaught Error: )?(?:Class|Interface|Trait|Enum) "([^"]+)" not found/', $message, $match) !== 1) {
            return [];
        }
        $own = "name its folder under \"autoload\" in the function's composer.json, or require its file";
        return ['hint' => "install the package that has {$match[1]} (composer require vendor/package); for a class of your own $own"];
    }

    /**
     * @param int $memoryMb the worker's limit, 0 for none
     * @return array<string, mixed> fields for a script that ended in the middle of something
     */
    public function describeEnd(bool $isLoading, string $entry, int $memoryMb): array
    {
        $error = \error_get_last();
        $isFatal = $error !== null && ($error['type'] & self::FATAL) !== 0;
        if (!$isFatal) {
            $message = ($isLoading ? 'the handler file' : 'the handler') . ' called exit() or die()';
            $fields = ['code' => $isLoading ? 'load' : 'exception', 'message' => $message, 'file' => $entry];
            return $fields + ['hint' => 'return a response instead'];
        }
        $message = \substr($error['message'], 0, self::MAX_MESSAGE_BYTES);
        if (\str_starts_with($message, 'Allowed memory size of ') || \str_starts_with($message, 'Out of memory')) {
            $message = self::outOfMemory($memoryMb) . " ($message)";
        }
        if ($isLoading) {
            return $this->atLoad($message, $error['file'], $error['line']);
        }
        return ['code' => 'exception', 'message' => $message, 'file' => $error['file'], 'line' => $error['line']];
    }

    /** The words of every runtime for it. */
    public static function outOfMemory(int $memoryMb): string
    {
        return 'out of memory' . ($memoryMb > 0 ? ": limit $memoryMb MB, FN_WORKER_MEMORY_MB" : '');
    }

    public static function message(\Throwable $error): string
    {
        $message = $error->getMessage() === '' ? \get_class($error) : $error->getMessage();
        return \substr($message, 0, self::MAX_MESSAGE_BYTES);
    }

    /** @return array{file: string, line: int} of the innermost frame that is the user's own, else where it was thrown */
    private function place(\Throwable $error): array
    {
        foreach ([['file' => $error->getFile(), 'line' => $error->getLine()], ...$error->getTrace()] as $frame) {
            if (isset($frame['file']) && $this->sources->isUsers($frame['file'])) {
                return ['file' => $frame['file'], 'line' => $frame['line']];
            }
        }
        return ['file' => $error->getFile(), 'line' => $error->getLine()];
    }

    /** Frames of the user's own code; those of packages and of this runtime say nothing to a function's author. */
    private function stack(\Throwable $error): string
    {
        $text = '';
        for ($cause = $error; $cause !== null; $cause = $cause->getPrevious()) {
            $title = ($cause === $error ? '' : 'caused by ') . \get_class($cause) . ': ' . self::message($cause);
            foreach ([$title, ...$this->frames($cause)] as $line) {
                if (\strlen($text) + \strlen($line) + 1 > self::MAX_STACK_BYTES) {
                    return \rtrim($text, "\n");
                }
                $text .= "$line\n";
            }
        }
        return \rtrim($text, "\n");
    }

    /** @return list<string> innermost first */
    private function frames(\Throwable $error): array
    {
        $lines = [];
        if ($this->sources->isUsers($error->getFile())) {
            $lines[] = "    at {$error->getFile()}:{$error->getLine()}";
        }
        foreach ($error->getTrace() as $frame) {
            if (isset($frame['file']) && $this->sources->isUsers($frame['file'])) {
                $name = ($frame['class'] ?? '') . ($frame['type'] ?? '') . $frame['function'];
                $lines[] = "    at {$frame['file']}:{$frame['line']} ($name)";
            }
        }
        return $lines;
    }
}
