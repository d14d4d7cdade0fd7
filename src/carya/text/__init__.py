"""Text models: conversion of texts to features, and ranking of named labels."""
