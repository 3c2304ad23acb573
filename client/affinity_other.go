//go:build !linux

package main

import "errors"

func setAffinity(string) error { return errors.New("supported on Linux only") }
