package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// setAffinity binds the process to the processors of a list such as "0" or "1,3".
func setAffinity(list string) error {
	var set unix.CPUSet
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n >= 1024 {
			return fmt.Errorf("want processor numbers, such as 0 or 0,1")
		}
		set.Set(n)
	}
	// Threads inherit the set from the one that creates them; those that exist already are set one by one.
	return forEachThread(func(tid int) error { return unix.SchedSetaffinity(tid, &set) })
}
func forEachThread(f func(tid int) error) error {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if err := f(tid); err != nil {
			return err
		}
	}
	return nil
}
