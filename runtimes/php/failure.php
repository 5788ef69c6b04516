<?php
/** What a handler or its file threw, as the fields of an `error` frame. Page: runtime/wire-protocol (14). */

declare(strict_types=1);

namespace Fngw;

final class Failure
{
    /** Longest message and stack, bytes. */
    private const MAX_TEXT_BYTES = 16 * 1024;
    /** Errors that end the script and cannot be caught. */
    private const FATAL = \E_ERROR | \E_CORE_ERROR | \E_COMPILE_ERROR | \E_PARSE | \E_USER_ERROR | \E_RECOVERABLE_ERROR;

    /** @return array<string, mixed> */
    public static function describe(\Throwable $error, string $code): array
    {
        $fields = ['code' => $code, 'message' => self::message($error)];
        $fields += ['file' => $error->getFile(), 'line' => $error->getLine()];
        return $fields + ['stack' => self::stack($error)];
    }

    /** @return array<string, mixed> fields for a function that cannot be loaded */
    public static function describeLoad(\Throwable $error, ?Loader $loader): array
    {
        if (!$error instanceof LoadError) {
            $fields = self::atLoad(self::message($error), $error->getFile(), $error->getLine(), $loader);
            return $error instanceof \ParseError ? $fields : $fields + ['stack' => self::stack($error)];
        }
        $fields = ['code' => 'load', 'message' => self::message($error), 'file' => $error->getFile()];
        if ($error->getLine() > 0) {
            $fields['line'] = $error->getLine();
        }
        return $error->hint === '' ? $fields : $fields + ['hint' => $error->hint];
    }

    /** @return array<string, mixed> with the place in the message: it is the first thing to know, and a log shows no more */
    private static function atLoad(string $message, string $file, int $line, ?Loader $loader): array
    {
        $place = ($loader === null ? $file : $loader->shorten($file)) . ":$line";
        $text = \preg_replace("/ \\(include_path='[^']*'\\)$/", '', $message);
        $message = \str_starts_with($message, 'syntax error, ')
            ? "syntax error in $place: " . \substr($message, \strlen('syntax error, '))
            : "cannot load $place: $text";
        return ['code' => 'load', 'message' => $message, 'file' => $file, 'line' => $line];
    }

    /** @return array<string, mixed> fields for a script that ended in the middle of something */
    public static function describeEnd(bool $isLoading, string $entry, Loader $loader): array
    {
        $error = \error_get_last();
        $isFatal = $error !== null && ($error['type'] & self::FATAL) !== 0;
        $message = $isFatal ? \substr($error['message'], 0, self::MAX_TEXT_BYTES) : '';
        if ($isFatal && $isLoading) {
            return self::atLoad($message, $error['file'], $error['line'], $loader);
        }
        $fields = ['code' => $isLoading ? 'load' : 'exception'];
        if ($isFatal) {
            return $fields + ['message' => $message, 'file' => $error['file'], 'line' => $error['line']];
        }
        $message = ($isLoading ? 'the handler file' : 'the handler') . ' called exit() or die()';
        return $fields + ['message' => $message, 'file' => $entry, 'hint' => 'return a response instead'];
    }

    public static function message(\Throwable $error): string
    {
        $message = $error->getMessage() === '' ? \get_class($error) : $error->getMessage();
        return \substr($message, 0, self::MAX_TEXT_BYTES);
    }

    /** Frames of user code; those of this runtime say nothing to a function's author. */
    private static function stack(\Throwable $error): string
    {
        $lines = [];
        for ($cause = $error; $cause !== null && \count($lines) < 100; $cause = $cause->getPrevious()) {
            $start = $cause === $error ? '' : 'caused by ';
            $lines[] = $start . \get_class($cause) . ': ' . $cause->getMessage();
            $lines[] = "    at {$cause->getFile()}:{$cause->getLine()}";
            foreach (\array_slice($cause->getTrace(), 0, 50) as $frame) {
                if (isset($frame['file']) && !Loader::isOwn($frame['file'])) {
                    $name = ($frame['class'] ?? '') . ($frame['type'] ?? '') . $frame['function'];
                    $lines[] = "    at {$frame['file']}:{$frame['line']} ($name)";
                }
            }
        }
        return \substr(\implode("\n", $lines), 0, self::MAX_TEXT_BYTES);
    }
}
