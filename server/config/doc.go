// Package config holds the settings of the appliance. A flag wins over an
// environment variable, which wins over the configuration file, which wins over
// Default. Only this package reads the environment.
package config
